// Compares two runs of the script.
//
// First what must differ from run to run is replaced: clock times, random ids, the HOME and its port. The
// seeded times of both Gateways are the same and stay as they are. Then each step must be equal, byte for
// byte in every text, except for what DIFFERENCES names.
import { isDeepStrictEqual } from "node:util";

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const ISO = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g;
/** Members that hold a measured duration. */
const DURATIONS = new Set(["runtimeMs", "durationMs"]);

/** Returns a function that replaces what is random in one side's results; ids are numbered as they appear. */
export function normaliser(gateway) {
  const ids = new Map();
  const numbered = (kind, id) => {
    if (!ids.has(id)) ids.set(id, `<${kind} ${ids.size + 1}>`);
    return ids.get(id);
  };
  const seeded = (ms) => ms >= gateway.base && ms < gateway.base + 600_000;
  const string = (value) =>
    value
      .replaceAll(gateway.home, "$HOME")
      .replaceAll(`127.0.0.1:${gateway.port}`, "$GATEWAY")
      .replace(UUID, (id) => numbered("uuid", id))
      .replace(/"[0-9a-f]{8}"/g, (id) => `"${numbered("id", id.slice(1, -1))}"`)
      .replace(/\b1[78]\d{11}\b/g, (ms) => (seeded(Number(ms)) ? ms : "<time>"))
      .replace(/("(?:runtimeMs|durationMs)": ?)\d+/g, "$1<duration>")
      .replace(ISO, "<time>");
  const walk = (value, key) => {
    if (Array.isArray(value)) return value.map((item) => walk(item));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, walk(v, k)]));
    if (typeof value === "string") return /^[0-9a-f]{8}$/.test(value) ? numbered("id", value) : string(value);
    if (typeof value !== "number") return value;
    if (DURATIONS.has(key)) return "<duration>";
    return value > 1.7e12 && value < 1.9e12 && !seeded(value) ? "<time>" : value;
  };
  return (value) => walk(JSON.parse(JSON.stringify(value ?? null)));
}

/**
 * The intended differences, each with its reason. `where` names the steps it may apply to; `settle(theirs,
 * ours, must)` brings both results to one form and returns whether it found its difference. What drawspan says
 * instead is checked too (`must`), so that an entry allows one thing and not anything.
 */
export const DIFFERENCES = [
  {
    name: "server version",
    reason: "the name stays openclaw, so that it is a drop-in; version and title are drawspan's",
    where: /initialize/,
    settle({ serverInfo: theirs }, { serverInfo: ours }, must) {
      must(theirs.name === "openclaw" && ours.name === "openclaw", "serverInfo.name is openclaw on both sides");
      must(/drawspan/i.test(ours.title ?? ""), "serverInfo.title names drawspan");
      must(/^\d+\.\d+\.\d+/.test(ours.version), "serverInfo.version is a version");
      for (const info of [theirs, ours]) info.version = "<version>";
      delete ours.title;
      return true;
    },
  },
  {
    name: "2024-10-07",
    reason: "a draft that was never published; it gets the newest revision with a handshake",
    where: /^initialize 2024-10-07$/,
    settle(theirs, ours, must) {
      must(theirs.protocolVersion === "2024-10-07", "the original echoes it");
      must(ours.protocolVersion === "2025-11-25", "drawspan answers 2025-11-25");
      theirs.protocolVersion = ours.protocolVersion;
      return true;
    },
  },
  {
    name: "tool descriptions",
    reason: "prose; ours is our own",
    where: /tools\/list/,
    settle(theirs, ours, must) {
      for (const tool of [...theirs.tools, ...ours.tools]) {
        must(typeof tool.description === "string" && tool.description, `${tool.name} has a description`);
        delete tool.description;
      }
      return true;
    },
  },
  {
    name: "visible loss",
    reason: "dropped and oldest_cursor tell a client of events that are gone",
    where: /./,
    settle(_theirs, ours, must) {
      let found = false;
      const walk = (value) => {
        if (!value || typeof value !== "object") return;
        if ("next_cursor" in value) {
          must(value.dropped === 0, "dropped is 0 while nothing was lost");
          must(Number.isInteger(value.oldest_cursor), "oldest_cursor is an integer");
          delete value.dropped;
          delete value.oldest_cursor;
          found = true;
        }
        Object.values(value).forEach(walk);
      };
      walk(ours);
      return found;
    },
  },
  {
    name: "argument errors",
    reason: "the words after the tool's name are ours: argument, rule and value",
    where: /^bad arguments: /,
    settle(theirs, ours, must) {
      const HEAD = /^MCP error -32602: Input validation error: Invalid arguments for tool \w+: /;
      const [theirText, ourText] = [theirs, ours].map((result) => result.content?.[0]?.text ?? "");
      if (!HEAD.test(theirText) || theirText === ourText) return false;
      must(HEAD.test(ourText), "the text begins as the original's");
      const said = ourText.replace(HEAD, "");
      for (const path of theirText.matchAll(/"path": \[\s*"(\w+)"/g)) must(said.includes(path[1]), `the text names ${path[1]}`);
      for (const result of [theirs, ours]) result.content[0].text = HEAD.exec(result.content[0].text)[0];
      return true;
    },
  },
  {
    name: "missing arguments",
    reason: "a call without arguments is a call with none",
    where: /^tools\/call without arguments$/,
    settle(theirs, ours, must) {
      must(theirs.isError === true, "the original refuses");
      must(ours.content?.[0]?.text === "events: 0" && !ours.isError, "drawspan answers as for {}");
      Object.assign(theirs, ours);
      delete theirs.isError;
      return true;
    },
  },
  {
    name: "error prose",
    reason: "the code of a JSON-RPC error is kept, its message is our own",
    where: /^method |^server\/discover/,
    settle(theirs, ours, must) {
      if (!theirs.error || !ours.error || theirs.error.message === ours.error.message) return false;
      must(typeof ours.error.message === "string" && ours.error.message, "there is a message");
      for (const { error } of [theirs, ours]) {
        delete error.message;
        delete error.data;
      }
      return true;
    },
  },
  {
    name: "2026-07-28",
    reason: "server/discover is a request of the modern revision, which wants its metadata",
    where: /^server\/discover without metadata$/,
    settle(theirs, ours, must) {
      must(theirs.error?.code === -32601, "the original does not know the method");
      must(ours.error?.code === -32602, "drawspan misses the metadata");
      theirs.error = ours.error;
      return true;
    },
  },
  {
    name: "invalid params",
    reason: "a tools/call without a name is -32602, not an internal error",
    where: /^tools\/call without a name$/,
    settle(theirs, ours, must) {
      must(theirs.error?.code === -32603, "the original says -32603");
      must(ours.error?.code === -32602, "drawspan says -32602");
      theirs.error = ours.error;
      return true;
    },
  },
  {
    name: "unreadable lines",
    reason: "each gets one error, so that nobody waits for ever",
    where: /^unreadable lines/,
    settle(theirs, ours, must) {
      must(theirs.others.length === 0, "the original is silent");
      const codes = ours.others.map(({ error }) => error?.code);
      must(codes.join() === "-32700,-32600,-32600,-32600", `one error per line: -32700, then -32600 (got ${codes})`);
      theirs.others = ours.others;
      return true;
    },
  },
  {
    name: "authorisation exit",
    reason: "exit 3 and one line on stderr for refused credentials",
    where: /^wrong token: /,
    settle(theirs, ours, must) {
      must(theirs.code === 1, "the original exits 1");
      must(ours.code === 3, `drawspan exits 3 (got ${ours.code})`);
      must(/unauthorized: gateway token mismatch/.test(ours.stderr), "stderr names the refusal");
      must(ours.stderr.trim().split("\n").length === 1, `stderr is one line: ${JSON.stringify(ours.stderr)}`);
      Object.assign(theirs, { code: ours.code, stderr: ours.stderr });
      return true;
    },
  },
  {
    name: "who may answer",
    reason: "only a user message answers a permission prompt; the assistant's is an ordinary message",
    where: /^mode off: the assistant answers a prompt$/,
    settle(theirs, ours, must) {
      must(theirs.answered.length === 1 && theirs.queued.join() === "the end", "the original lets it pass");
      must(ours.answered.length === 0, "drawspan sends no answer");
      must(ours.queued.join() === "yes tuvwx,the end", "drawspan queues the message");
      Object.assign(theirs, ours);
      return true;
    },
  },
];

/** `[{step, verdict: "same" | "by design" | "different", names, detail}]`, and the entries that never applied. */
export function compare(theirSteps, ourSteps) {
  const used = new Set();
  const rows = [];
  for (const step of new Set([...theirSteps.keys(), ...ourSteps.keys()])) {
    if (!theirSteps.has(step) || !ourSteps.has(step)) {
      rows.push({ step, verdict: "different", detail: `only ${theirSteps.has(step) ? "the original" : "drawspan"} came to this step` });
      continue;
    }
    rows.push({ step, ...compareStep(step, theirSteps.get(step), ourSteps.get(step), used) });
  }
  return { rows, unused: DIFFERENCES.filter(({ name }) => !used.has(name)).map(({ name }) => name) };
}

function compareStep(step, theirs, ours, used) {
  if (isDeepStrictEqual(theirs, ours)) return { verdict: "same" };
  const [a, b] = [structuredClone(theirs), structuredClone(ours)];
  const names = [];
  const wrong = [];
  for (const { name, where, settle } of DIFFERENCES) {
    if (isDeepStrictEqual(a, b) || !where.test(step)) continue;
    try {
      if (settle(a, b, (holds, what) => holds || wrong.push(`${name}: not so: ${what}`))) {
        names.push(name);
        used.add(name);
      }
    } catch (error) {
      wrong.push(`${name}: ${error.message}`);
    }
  }
  if (!isDeepStrictEqual(a, b)) wrong.push(firstDifference(a, b));
  return wrong.length ? { verdict: "different", detail: wrong.join("; ") } : { verdict: "by design", names };
}

/** Where two results part, and what stands there. */
function firstDifference(theirs, ours, path = "result") {
  const show = (value) => (value === undefined ? "absent" : JSON.stringify(value).slice(0, 300));
  if (typeof theirs === "string" && typeof ours === "string") {
    let at = 0;
    while (theirs[at] === ours[at]) at++;
    const from = Math.max(0, at - 40);
    return `${path} at character ${at}: expected …${show(theirs.slice(from, at + 80))}, got …${show(ours.slice(from, at + 80))}`;
  }
  const both = [theirs, ours].every((value) => value && typeof value === "object");
  if (both && Array.isArray(theirs) === Array.isArray(ours)) {
    for (const key of new Set([...Object.keys(theirs), ...Object.keys(ours)])) {
      if (!isDeepStrictEqual(theirs[key], ours[key])) return firstDifference(theirs[key], ours[key], `${path}.${key}`);
    }
  }
  return `${path}: expected ${show(theirs)}, got ${show(ours)}`;
}
