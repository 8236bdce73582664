// The intended differences between drawspan and the original, each with its reason.
//
// `where` names the steps an entry may apply to; `settle(theirs, ours, must)` brings both results
// to one form and returns whether it found its difference. What drawspan says instead is checked
// too (`must`), so that an entry allows one thing and not anything. An entry that never applies
// fails the run: the table says what is so, not what once was.
export const DIFFERENCES = [
  {
    name: "server version",
    reason: "the name stays openclaw, so that it is a drop-in; version and title are drawspan's",
    where: /^(mode off: )?initialize/,
    settle({ serverInfo: theirs }, { serverInfo: ours }, must) {
      must(
        theirs.name === "openclaw" && ours.name === "openclaw",
        "serverInfo.name is openclaw on both sides",
      );
      must(/drawspan/i.test(ours.title ?? ""), "serverInfo.title names drawspan");
      must(/^\d+\.\d+\.\d+/.test(ours.version), "serverInfo.version is a version");
      for (const info of [theirs, ours]) info.version = "<version>";
      delete ours.title;
      return true;
    },
  },
  {
    name: "logging",
    reason: "log messages are there for clients that set a level; without that none is sent",
    where: /^(mode off: )?initialize/,
    settle({ capabilities: theirs }, { capabilities: ours }, must) {
      must(!("logging" in theirs), "the original has no log messages");
      must(JSON.stringify(ours.logging) === "{}", "drawspan declares logging");
      delete ours.logging;
      return true;
    },
  },
  {
    name: "log level",
    reason: "a level can be set, as the specification says of servers that declare logging",
    where: /^method logging\/setLevel$/,
    settle(theirs, ours, must) {
      must(theirs.error?.code === -32601, "the original does not know the method");
      must(JSON.stringify(ours.result) === "{}", "drawspan accepts the level");
      delete theirs.error;
      theirs.result = ours.result;
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
        must(
          typeof tool.description === "string" && tool.description,
          `${tool.name} has a description`,
        );
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
      for (const path of theirText.matchAll(/"path": \[\s*"(\w+)"/g))
        must(said.includes(path[1]), `the text names ${path[1]}`);
      for (const result of [theirs, ours])
        result.content[0].text = HEAD.exec(result.content[0].text)[0];
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
      must(
        codes.join() === "-32700,-32600,-32600,-32600",
        `one error per line: -32700, then -32600 (got ${codes})`,
      );
      theirs.others = ours.others;
      return true;
    },
  },
  {
    name: "refused credentials",
    reason: "the error adds which Gateway and what to do; one line on stderr and exit 3",
    where: /^wrong token: /,
    settle(theirs, ours, must) {
      must(theirs.code === 1, "the original exits 1");
      must(ours.code === 3, `drawspan exits 3 (got ${ours.code})`);
      const words = theirs.list.content[0].text;
      must(
        /unauthorized: gateway token mismatch/.test(words),
        "the original gives the Gateway's words",
      );
      must(
        ours.list.content[0].text.includes(words),
        "the blocked call's text has the Gateway's words",
      );
      must(ours.stderr.includes(words), "stderr has the Gateway's words");
      must(
        ours.stderr.trim().split("\n").length === 1,
        `stderr is one line: ${JSON.stringify(ours.stderr)}`,
      );
      theirs.list.content = ours.list.content;
      Object.assign(theirs, { code: ours.code, stderr: ours.stderr });
      return true;
    },
  },
  {
    name: "who may answer",
    reason:
      "only a user message answers a permission prompt; the assistant's is an ordinary message",
    where: /^mode off: the assistant answers a prompt$/,
    settle(theirs, ours, must) {
      must(
        theirs.answered.length === 1 && theirs.queued.join() === "the end",
        "the original lets it pass",
      );
      must(ours.answered.length === 0, "drawspan sends no answer");
      must(ours.queued.join() === "yes tuvwx,the end", "drawspan queues the message");
      Object.assign(theirs, ours);
      return true;
    },
  },
];
