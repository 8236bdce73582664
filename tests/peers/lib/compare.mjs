// Compares two runs of the script.
//
// First what must differ from run to run is replaced: clock times, random ids, the HOME and its
// port. The seeded times of both Gateways are the same and stay as they are. Then each step must be
// equal, byte for byte in every text, except for what DIFFERENCES names.
import { isDeepStrictEqual } from "node:util";
import { DIFFERENCES } from "./differences.mjs";

// A random id, or what the Gateway's redactor leaves of one whose digits look like a secret.
const UUID =
  /[0-9a-f]{8}-(?:[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f-]{0,26}\*{3}[0-9a-f-]*)/g;
const ISO = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g;
/** Members that hold a measured duration. */
const DURATIONS = new Set(["runtimeMs", "durationMs"]);

/** Replaces what is random in one step's result; ids are numbered as they appear in it. */
export function normalise(gateway, result) {
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
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, walk(v, k)]));
    if (typeof value === "string")
      return /^[0-9a-f]{8}$/.test(value) ? numbered("id", value) : string(value);
    if (typeof value !== "number") return value;
    if (DURATIONS.has(key)) return "<duration>";
    return value > 1.7e12 && value < 1.9e12 && !seeded(value) ? "<time>" : value;
  };
  return walk(JSON.parse(JSON.stringify(result ?? null)));
}

/**
 * `[{step, verdict: "same" | "by design" | "different", names, detail}]`, and the entries that
 * never applied.
 */
export function compare(theirSteps, ourSteps) {
  const used = new Set();
  const rows = [];
  for (const step of new Set([...theirSteps.keys(), ...ourSteps.keys()])) {
    if (!theirSteps.has(step) || !ourSteps.has(step)) {
      rows.push({
        step,
        verdict: "different",
        detail: `only ${theirSteps.has(step) ? "the original" : "drawspan"} came to this step`,
      });
      continue;
    }
    rows.push({ step, ...compareStep(step, theirSteps.get(step), ourSteps.get(step), used) });
  }
  return {
    rows,
    unused: DIFFERENCES.filter(({ name }) => !used.has(name)).map(({ name }) => name),
  };
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
  return wrong.length
    ? { verdict: "different", detail: wrong.join("; ") }
    : { verdict: "by design", names };
}

/** Where two results part, and what stands there. */
function firstDifference(theirs, ours, path = "result") {
  const show = (value) => (value === undefined ? "absent" : JSON.stringify(value).slice(0, 300));
  if (typeof theirs === "string" && typeof ours === "string") {
    let at = 0;
    while (theirs[at] === ours[at]) at++;
    const from = Math.max(0, at - 40);
    const [expected, got] = [theirs, ours].map((value) => show(value.slice(from, at + 80)));
    return `${path} at character ${at}: expected …${expected}, got …${got}`;
  }
  const both = [theirs, ours].every((value) => value && typeof value === "object");
  const failed = ["error", "broken"].some((key) => both && key in theirs !== key in ours);
  if (both && !failed && Array.isArray(theirs) === Array.isArray(ours)) {
    for (const key of new Set([...Object.keys(theirs), ...Object.keys(ours)])) {
      if (!isDeepStrictEqual(theirs[key], ours[key]))
        return firstDifference(theirs[key], ours[key], `${path}.${key}`);
    }
  }
  return `${path}: expected ${show(theirs)}, got ${show(ours)}`;
}
