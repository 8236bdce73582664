// The parity script: one list of steps, run once against the original and once against drawspan.
//
// A step is a name and what came back. Nothing here knows which side it runs on; compare.mjs holds
// the one table of intended differences.
import { MAIN, SLACK, UNROUTED } from "./gateway.mjs";
import { sleep } from "./processes.mjs";
import { unwrap } from "./mcp-client.mjs";
import { bind, Recorder } from "./recorder.mjs";

const VERSIONS = ["2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07", "2026-07-28", "garbage"];

/**
 * Runs every step and returns the record, which says so when it had to stop early.
 * `side`: `{gateway, operator, telegram, wrongTokenFile, open(options), negotiate(client, v)}`.
 */
export async function runScript(side) {
  const record = new Recorder();
  const wrongToken = refusedAtStart(record, side);
  try {
    await story(record, side);
  } catch (error) {
    record.broken.push(`stopped early: ${error.message}`);
  }
  await wrongToken;
  return record;
}

async function story(record, side) {
  const client = side.open();
  await opening(record, side, client);
  await reading(record, client);
  await badArguments(record, client);
  await badRequests(record, client);
  await liveMessages(record, side, client);
  await execApprovals(record, side, client);
  await pluginApprovals(record, side, client);
  await claudePermissions(record, side, client);
  await waiting(record, side, client);
  await sending(record, side, client);
  await ending(record, client);
  await channelModeOff(record, side);
}

async function opening(record, side, client) {
  const { step } = bind(record);
  await step("initialize 2025-11-25", async () => unwrap(await client.initialize()));
  side.firstAnswerMs = Math.round(performance.now() - client.startedAt);
  side.residentKib = client.residentKib;
  for (const version of VERSIONS)
    await step(`initialize ${version}`, async () => unwrap(await side.negotiate(client, version)));
  await step("ping", () => client.request("ping"));
  await step("tools/list", async () => unwrap(await client.request("tools/list")));
  await step("tools/list with a cursor", async () =>
    unwrap(await client.request("tools/list", { cursor: "zzz" })),
  );
}

async function reading(record, client) {
  const { step, call } = bind(record, client);
  await call("conversations_list");
  await call("conversations_list", {
    channel: " Slack ",
    limit: 1,
    includeDerivedTitles: false,
    includeLastMessage: false,
  });
  await call("conversations_list", { channel: " Slack " });
  await call("conversations_list", { channel: "irc" });
  await call("conversations_list", { search: "Ada" });
  await call("conversations_list", { search: "no such thing" });
  await call("conversations_list", { limit: 1 });
  await call("conversation_get", { session_key: SLACK });
  await call("conversation_get", { session_key: "main" });
  await call("conversation_get", { session_key: `  ${MAIN} ` });
  await call("conversation_get", { session_key: UNROUTED });
  await call("conversation_get", { session_key: "agent:main:nope" });
  await call("conversation_get", { session_key: "   " });
  await call("messages_read", { session_key: MAIN });
  await call("messages_read", { session_key: MAIN, limit: 1 });
  await call("messages_read", { session_key: UNROUTED });
  await call("messages_read", { session_key: "agent:main:nope" });
  await call("attachments_fetch", { session_key: MAIN, message_id: "m1c" });
  await call("attachments_fetch", { session_key: MAIN, message_id: "m1a" });
  await call("attachments_fetch", { session_key: MAIN, message_id: "m1a", limit: 1 });
  await call("attachments_fetch", { session_key: MAIN, message_id: "zzz" });
  await call("attachments_fetch", { session_key: SLACK, message_id: "m2a" });
  await call("events_poll");
  await call("events_poll", { after_cursor: 999 });
  await call("permissions_list_open");
  await call("permissions_respond", { kind: "exec", id: "nope", decision: "deny" });
  await call("permissions_respond", { kind: "plugin", id: "plugin:nope", decision: "allow-once" });
  await call("messages_send", { session_key: "agent:main:nope", text: "hi" });
  await call("messages_send", { session_key: UNROUTED, text: "hi" });
  await step("two calls at once", async () => {
    const ids = [
      client.postTool("conversations_list", { limit: 1 }),
      client.postTool("messages_read", { session_key: SLACK, limit: 1 }),
    ];
    return Promise.all(ids.map(async (id) => unwrap(await client.answer(id))));
  });
}

/** What the argument schemas refuse: a tool result, not a protocol error. */
async function badArguments(record, client) {
  const { call } = bind(record, client, "bad arguments: ");
  await call("events_poll", { limit: 0 });
  await call("events_poll", { limit: 201 });
  await call("events_poll", { limit: 1.5 });
  await call("events_poll", { limit: null });
  await call("events_poll", { after_cursor: "3" });
  await call("events_poll", { after_cursor: -1 });
  await call("events_poll", { bogus: true });
  await call("events_poll", { session_key: 7 });
  await call("conversation_get", {});
  await call("conversation_get", { session_key: "" });
  await call("permissions_respond", { kind: "x", id: "1", decision: "maybe" });
  await call("events_wait", { timeout_ms: 300001 });
  await call("events_wait", { timeout_ms: 0 });
  await call("conversations_list", { limit: 501 });
  await call("conversations_list", { includeLastMessage: "yes" });
  await call("messages_read", { session_key: MAIN, limit: 201 });
  await call("messages_send", { session_key: MAIN, text: "" });
  await call("attachments_fetch", { session_key: MAIN });
  await call("no_such_tool");
}

async function badRequests(record, client) {
  const { step } = bind(record, client);
  for (const method of [
    "resources/list",
    "prompts/list",
    "logging/setLevel",
    "completion/complete",
    "no/such/method",
  ]) {
    await step(`method ${method}`, () => client.request(method, { level: "debug" }));
  }
  await step("server/discover without metadata", () => client.request("server/discover", {}));
  await step("tools/call without arguments", async () =>
    unwrap(await client.request("tools/call", { name: "events_poll" })),
  );
  await step("tools/call without a name", () => client.request("tools/call", {}));
  await step("unreadable lines, then ping", async () => {
    const before = client.received.length;
    client.line("this is not JSON");
    client.line('{"jsonrpc":"1.0","id":9901,"method":"ping"}');
    client.line('{"foo":1}');
    client.line('[{"jsonrpc":"2.0","id":9902,"method":"ping"}]');
    const ping = await client.request("ping");
    return {
      ping,
      others: client.received.slice(before).filter((m) => m.id == null || m.id >= 9900),
    };
  });
  await step("a line ended by CR LF", async () => {
    client.line('{"jsonrpc":"2.0","id":"crlf","method":"ping"}\r');
    return client.answer("crlf", 5_000);
  });
}

async function liveMessages(record, { operator }, client) {
  const { step, call, eventAt } = bind(record, client, "live: ");
  await step("events_wait wakes on an assistant message", async () => {
    const id = client.postTool("events_wait", { after_cursor: 0, timeout_ms: 20_000 });
    await operator.says(MAIN, "An operator note", "note");
    return unwrap(await client.answer(id));
  });
  await step("a user message is announced to the channel", async () => {
    const added = await operator.hears(SLACK, "live inbound user text");
    await eventAt(1 + added);
    const { params } = await client.notification("notifications/claude/channel");
    return { added, params };
  });
  await call("events_poll", { after_cursor: 0 });
  await call("events_poll", { after_cursor: 1, limit: 1 });
  await call("events_poll", { after_cursor: 0, session_key: ` ${MAIN} ` });
  await call("events_poll", { after_cursor: 0, session_key: "main" });
  await call("events_poll", { after_cursor: 0, session_key: "  " });
  await call("events_poll", { after_cursor: 2, session_key: MAIN });
  await call("conversations_list");
  await call("messages_read", { session_key: SLACK, limit: 2 });
}

async function execApprovals(record, { operator }, client) {
  const { step, call, eventAt } = bind(record, client, "exec approval: ");
  const ask = (id, more) =>
    operator.call("exec.approval.request", {
      id,
      host: "gateway",
      twoPhase: true,
      timeoutMs: 60_000,
      ...more,
    });
  const origin = {
    agentId: "main",
    sessionKey: MAIN,
    turnSourceChannel: "telegram",
    turnSourceTo: "100200300",
  };
  await step("requested wakes a waiter", async () => {
    const id = client.postTool("events_wait", { after_cursor: 3, timeout_ms: 20_000 });
    await ask("appr-exec-1", {
      command: "rm -rf /srv/demo",
      cwd: "/srv",
      ask: "on-miss",
      ...origin,
    });
    return unwrap(await client.answer(id));
  });
  await call("permissions_list_open");
  await call("permissions_respond", { kind: "plugin", id: "appr-exec-1", decision: "allow-once" });
  await call("permissions_respond", { kind: "exec", id: "appr-exec-1", decision: "allow-once" });
  await call("permissions_list_open", {}, "after the answer");
  await call("events_poll", { after_cursor: 3 });
  await call(
    "permissions_respond",
    { kind: "exec", id: "appr-exec-1", decision: "allow-once" },
    "again",
  );
  await call("permissions_respond", { kind: "exec", id: "appr-exec-1", decision: "deny" });
  await ask("appr-exec-2", { command: "ls", ask: "always" });
  await eventAt(6);
  await call("permissions_respond", { kind: "exec", id: "appr-exec-2", decision: "allow-always" });
  await call("permissions_respond", { kind: "exec", id: "appr-exec-2", decision: "deny" });
  await ask("appr-exec-3", { command: "ls -l", timeoutMs: 1_000 });
  await ask("appr-exec-4", { command: "ls -a" });
  await eventAt(9);
  await call("permissions_list_open", {}, "two open");
  await sleep(1_200);
  await call("permissions_list_open", {}, "one expired");
  await operator.call("exec.approval.resolve", { id: "appr-exec-4", decision: "allow-once" });
  await eventAt(10);
  await call("permissions_list_open", {}, "one answered by somebody else");
  await call("events_poll", { after_cursor: 5, limit: 200 });
  await call("events_poll", { after_cursor: 3, session_key: MAIN });
}

async function pluginApprovals(record, { operator }, client) {
  const { step, call, cursor } = bind(record, client, "plugin approval: ");
  const from = await cursor();
  let id;
  await step("requested wakes a waiter", async () => {
    const waiter = client.postTool("events_wait", { after_cursor: from, timeout_ms: 20_000 });
    ({ id } = await operator.call("plugin.approval.request", {
      pluginId: "demo",
      title: "Send a mail",
      description: "The plugin wants to send a mail",
      severity: "warning",
      toolName: "mail_send",
      toolCallId: "tc-1",
      agentId: "main",
      sessionKey: MAIN,
      twoPhase: true,
      timeoutMs: 60_000,
    }));
    return unwrap(await client.answer(waiter));
  });
  await call("permissions_list_open");
  await step("permissions_respond deny", () =>
    client.tool("permissions_respond", { kind: "plugin", id, decision: "deny" }),
  );
  await call("permissions_list_open", {}, "after the answer");
  await call("events_poll", { after_cursor: from });
}

const prompt = (request_id, more) => ({
  request_id,
  tool_name: "Bash",
  description: "Run a shell command",
  input_preview: '{"command":"ls"}',
  ...more,
});

async function claudePermissions(record, { operator }, client) {
  const { step, call, eventAt, cursor } = bind(record, client, "claude: ");
  const ask = (params) => client.notify("notifications/claude/channel/permission_request", params);
  const from = await cursor();
  ask(prompt("abcde"));
  ask(prompt("FGHKM", { input_preview: "" }));
  ask({ request_id: "bcdef", tool_name: "Bash" });
  ask(prompt("nopqr"));
  await eventAt(from + 3);
  await call("events_poll", { after_cursor: from });
  await call("permissions_list_open");
  /** A user's message, what it made the bridge notify, and what of the turn is in the queue. */
  const said = (name, text, method, hidden) =>
    step(name, async () => {
      const before = await cursor();
      const added = await operator.hears(SLACK, text);
      const { params } = await client.notification(method);
      if (added > hidden) await eventAt(before + added - hidden);
      return {
        added,
        params,
        ...(await client.tool("events_poll", { after_cursor: before, limit: 200 })),
      };
    });
  const ordinary = (name, text) => said(name, text, "notifications/claude/channel", 0);
  const answered = (name, text) => said(name, text, "notifications/claude/channel/permission", 1);
  await ordinary("an unknown code is an ordinary message", "yes zzzzz");
  await ordinary("words after the code: an ordinary message", "yes abcde please");
  await answered("a user allows", "yes abcde");
  await ordinary("a used code is an ordinary message", "no abcde");
  await answered("a user denies in capitals", "NO  NOPQR");
  await ordinary("an id in capitals cannot be answered", "yes fghkm");
}

async function waiting(record, { operator }, client) {
  const { step, cursor, eventAt } = bind(record, client, "events_wait: ");
  const wait = async (args) => {
    const begin = performance.now();
    const result = await client.tool("events_wait", args);
    return { result, ms: performance.now() - begin };
  };
  const from = await cursor();
  await step("times out", async () => {
    const { result, ms } = await wait({ after_cursor: from, timeout_ms: 500 });
    return { result, waited: ms >= 495 };
  });
  await step("three waiters", async () => {
    const any = client.postTool("events_wait", { after_cursor: from, timeout_ms: 20_000 });
    const slack = client.postTool("events_wait", {
      after_cursor: from,
      timeout_ms: 20_000,
      session_key: SLACK,
    });
    const never = client.postTool("events_wait", { after_cursor: from + 100, timeout_ms: 2_000 });
    await operator.says(MAIN, "wake one");
    const first = unwrap(await client.answer(any));
    await operator.says(SLACK, "wake two");
    return [first, unwrap(await client.answer(slack)), unwrap(await client.answer(never))];
  });
  await step("two waiters for the same event", async () => {
    const ids = [0, 1].map(() =>
      client.postTool("events_wait", { after_cursor: from + 2, timeout_ms: 20_000 }),
    );
    await operator.says(MAIN, "wake both");
    return Promise.all(ids.map(async (id) => unwrap(await client.answer(id))));
  });
  await step("answers at once from the queue", async () => {
    const { result, ms } = await wait({ after_cursor: from, timeout_ms: 20_000 });
    return { result, atOnce: ms < 5_000 };
  });
  await step("the filter skips other sessions", () =>
    client.tool("events_wait", { after_cursor: from, session_key: SLACK, timeout_ms: 1_000 }),
  );
  await step("a cancelled call gets no answer", async () => {
    const before = client.received.length;
    const id = client.postTool(
      "events_wait",
      { after_cursor: from + 50, timeout_ms: 1_500 },
      { progressToken: "p1" },
    );
    await sleep(200);
    client.notify("notifications/cancelled", { requestId: id, reason: "changed my mind" });
    await sleep(1_800);
    const ping = await client.request("ping");
    return { ping, answers: client.received.slice(before).filter((m) => m.id === id).length };
  });
  await eventAt(from + 3);
}

async function sending(record, { telegram }, client) {
  const { step, call, eventAt, cursor } = bind(record, client, "telegram: ");
  await step("messages_send reaches the chat", async () => {
    const before = await cursor();
    const result = await client.tool("messages_send", {
      session_key: MAIN,
      text: "reply through the stored route",
    });
    await eventAt(before + 1);
    const sent = telegram.sent.at(-1);
    return {
      result,
      sent: { chat_id: sent?.chat_id, text: sent?.text },
      ...(await client.tool("events_poll", { after_cursor: before })),
    };
  });
  await step("messages_send by alias", async () => {
    const before = await cursor();
    const result = await client.tool("messages_send", {
      session_key: "main",
      text: "  spaces stay  ",
    });
    await eventAt(before + 1);
    return { result, sent: telegram.sent.at(-1)?.text };
  });
  await call("messages_send", { session_key: SLACK, text: "no such channel plugin" });
  await step("a real inbound message", async () => {
    const before = await cursor();
    telegram.receive("a real inbound telegram message");
    const { params } = await client.notification("notifications/claude/channel");
    await eventAt(before + 3);
    return { params, ...(await client.tool("events_poll", { after_cursor: before, limit: 200 })) };
  });
  await call("conversations_list", { channel: "telegram" });
  await call("messages_read", { session_key: MAIN, limit: 4 });
}

async function ending(record, client) {
  const { step, cursor } = bind(record, client, "end of input: ");
  await step("an open waiter answers, exit 0", async () => {
    const id = client.postTool("events_wait", {
      after_cursor: (await cursor()) + 100,
      timeout_ms: 60_000,
    });
    await client.request("ping");
    const exit = client.end();
    const result = unwrap(await client.answer(id));
    const { code, signal, ms } = await exit;
    return { result, code, signal, inTime: ms < 10_000 };
  });
  await step("stdout carried nothing but MCP", () => client.impure);
}

/** Without the channel: no capability, no channel message; prompts are still answered. */
async function channelModeOff(record, side) {
  const { operator } = side;
  const client = side.open({ more: ["--claude-channel-mode", "off"] });
  const { step, call, cursor, eventAt } = bind(record, client, "mode off: ");
  await step("tools/list before initialize", async () =>
    unwrap(await client.request("tools/list")),
  );
  await call("events_poll");
  await step("initialize", async () => unwrap(await client.initialize()));
  await call("conversations_list", { search: "seed-room" });
  await step("a user message is queued and not announced", async () => {
    await eventAt(await operator.hears(SLACK, "nobody is told"));
    const announced = client.received.filter((m) => m.method === "notifications/claude/channel");
    return { announced, ...(await client.tool("events_poll")) };
  });
  await step("a user answers a prompt", async () => {
    const before = await cursor();
    client.notify("notifications/claude/channel/permission_request", prompt("hijkm"));
    await eventAt(before + 1);
    await operator.hears(SLACK, "yes hijkm");
    const { params } = await client.notification("notifications/claude/channel/permission");
    return params;
  });
  await step("the assistant answers a prompt", async () => {
    const before = await cursor();
    client.notify("notifications/claude/channel/permission_request", prompt("tuvwx"));
    await eventAt(before + 1);
    await operator.says(SLACK, "yes tuvwx");
    await operator.says(SLACK, "the end");
    const texts = async () => {
      const { structuredContent } = await client.tool("events_poll", { after_cursor: before + 1 });
      return structuredContent.events.map((event) => event.text);
    };
    await eventAt(before + 2);
    if (!(await texts()).includes("the end")) await eventAt(before + 3);
    const answer = client.received.filter(
      (m) => m.method === "notifications/claude/channel/permission" && !m.seen,
    );
    return { answered: answer.map(({ params }) => params), queued: await texts() };
  });
  await step("exit", async () => {
    const { code, signal } = await client.end();
    return { code, signal, impure: client.impure };
  });
}

/** A wrong token: what is asked meanwhile, what is said, how it ends. */
async function refusedAtStart(record, side) {
  const client = side.open({ tokenFile: side.wrongTokenFile });
  const { step } = bind(record, client, "wrong token: ");
  await step("a blocked call, a waiter, the exit", async () => {
    const greeting = client.initialize();
    const list = client.postTool("conversations_list");
    const wait = client.postTool("events_wait", { timeout_ms: 30_000 });
    await greeting;
    const answers = await Promise.all(
      [list, wait].map(async (id) => unwrap(await client.answer(id))),
    );
    const { code } = await client.ended;
    return {
      list: answers[0],
      wait: answers[1],
      code,
      stderr: client.stderr,
      impure: client.impure,
    };
  });
}
