// What drawspan promises beyond the original, on the real Gateway.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { MAIN } from "./gateway.mjs";
import { Operator } from "./operator.mjs";
import { sleep } from "./processes.mjs";
import { unwrap } from "./mcp-client.mjs";

/** The back-off after several failed tries is 8 s, and a busy Gateway takes its time. */
const BACK_MS = 60_000;
const NOT_CONNECTED = /^gateway not connected: .+, next try in \d+ s$/;

export async function onlyDrawspan(checks, side) {
  const { gateway } = side;
  const identity = path.join(gateway.state, "identity");
  const before = fs.readFileSync(path.join(identity, "device.json"), "utf8");
  await onARunningGateway(checks, side);
  side.operator.close();
  await acrossARestart(checks, side);
  await checks.check("the shared identity files stay usable", () => {
    assert.equal(
      fs.readFileSync(path.join(identity, "device.json"), "utf8"),
      before,
      "device.json is untouched",
    );
    const file = path.join(identity, "device-auth.json");
    const auth = JSON.parse(fs.readFileSync(file, "utf8"));
    assert.deepEqual([auth.version, auth.deviceId], [1, JSON.parse(before).deviceId]);
    assert.ok(auth.tokens.operator.token, "the operator token is kept");
    assert.equal(fs.statSync(file).mode & 0o777, 0o600, "mode of device-auth.json");
  });
  await checks.check("no secret on stderr", () => {
    const { token } = JSON.parse(fs.readFileSync(path.join(identity, "device-auth.json"), "utf8"))
      .tokens.operator;
    for (const client of side.opened) {
      for (const secret of [gateway.token, token, "wrong-secret"])
        assert.ok(!client.stderr.includes(secret), client.stderr);
    }
  });
}

async function onARunningGateway(checks, side) {
  await checks.check("finds the Gateway from the config alone", async () => {
    const client = side.open({ bare: true });
    await client.initialize();
    const { structuredContent } = await client.tool("conversations_list");
    assert.equal(structuredContent.conversations.length, 2);
    assert.equal((await client.end()).code, 0);
  });
  await checks.check("an approval raised before it connected is listed and answered", async () => {
    const ask = {
      id: "appr-early",
      command: "uptime",
      host: "gateway",
      twoPhase: true,
      timeoutMs: 60_000,
    };
    // The Gateway drops a request that nobody connected could answer.
    const witness = await Operator.connect(side.gateway);
    await side.operator.call("exec.approval.request", ask);
    const client = side.open();
    await client.initialize();
    await client.tool("conversations_list");
    const open = await eventually(5_000, async () => {
      const { structuredContent } = await client.tool("permissions_list_open");
      return structuredContent.approvals.find(({ id }) => id === "appr-early");
    });
    assert.equal(open.kind, "exec");
    assert.equal(open.request.command, "uptime");
    const { content } = await client.tool("permissions_respond", {
      kind: "exec",
      id: "appr-early",
      decision: "deny",
    });
    assert.equal(content[0].text, "approval resolved");
    witness.close();
    assert.equal((await client.end()).code, 0);
  });
  await checks.check("a call held by a rule is shown at the Gateway and answered there", async () => {
    const config = path.join(side.gateway.home, "held.json");
    const rule = { tool: "messages_read", action: "hold", title: "Read it?" };
    fs.writeFileSync(config, JSON.stringify({ gate: { rules: [rule] } }));
    const client = side.open({ more: ["--config", config] });
    await client.initialize();
    const held = async () => {
      const open = await side.operator.call("plugin.approval.list");
      return open.find(({ request }) => request.title === rule.title);
    };
    for (const decision of ["allow-once", "deny"]) {
      const call = client.postTool("messages_read", { session_key: MAIN });
      const { id, request } = await eventually(10_000, held);
      assert.deepEqual([request.pluginId, request.toolName], ["drawspan", "messages_read"]);
      await side.operator.call("plugin.approval.resolve", { id, decision });
      const { isError = false } = unwrap(await client.answer(call, 5_000));
      assert.equal(isError, decision === "deny");
    }
    // One that its caller takes back is gone there as well.
    const call = client.postTool("messages_read", { session_key: MAIN });
    await eventually(10_000, held);
    client.notify("notifications/cancelled", { requestId: call });
    await eventually(10_000, async () => !(await held()));
    assert.equal((await client.end()).code, 0);
  });
  await checks.check("SIGTERM: waiters answer, exit 0", async () => {
    const client = side.open();
    await client.initialize();
    await client.tool("conversations_list");
    const waiter = client.postTool("events_wait", { after_cursor: 1000, timeout_ms: 60_000 });
    await client.request("ping");
    client.signal("SIGTERM");
    assert.equal(unwrap(await client.answer(waiter, 5_000)).content[0].text, "timeout");
    assert.deepEqual(await client.ended, { code: 0, signal: null });
  });
}

/** One client that was there before, one that comes while the Gateway is away; then it returns. */
async function acrossARestart(checks, side) {
  const { gateway, telegram } = side;
  const early = side.open();
  await early.initialize();
  await early.tool("conversations_list");

  await gateway.stop();
  await checks.check("Gateway away: tools say so and when the next try is", async () => {
    const text = await eventually(10_000, async () => {
      const result = await early.tool("conversations_list");
      return result.isError && result.content[0].text;
    });
    assert.match(text, NOT_CONNECTED);
  });
  const late = side.open();
  let blocked;
  await checks.check("Gateway not up yet: MCP answers, the process stays", async () => {
    assert.equal(unwrap(await late.initialize()).serverInfo.name, "openclaw");
    assert.equal((await late.tool("events_poll")).content[0].text, "events: 0");
    blocked = late.postTool("conversations_list");
    const ended = await Promise.race([late.ended, sleep(1_500)]);
    assert.equal(ended, undefined, `it ended: ${late.stderr}`);
  });

  gateway.start();
  await gateway.ready();
  await checks.check(
    "Gateway up at last: the call is answered, or says why not and works when asked again",
    async () => {
      const first = unwrap(await late.answer(blocked, BACK_MS));
      if (first.isError) assert.match(first.content[0].text, NOT_CONNECTED);
      const result = await eventually(BACK_MS, async () => {
        const again = await late.tool("conversations_list");
        return !again.isError && again;
      });
      assert.equal(result.structuredContent.conversations.length, 2);
    },
  );
  await checks.check("Gateway back: tools work again", () =>
    eventually(BACK_MS, async () => !(await early.tool("conversations_list")).isError),
  );
  const operator = await Operator.connect(gateway);
  await checks.check("Gateway back: events go on after a gap that says why", async () => {
    const gap = await eventually(10_000, async () => {
      const { structuredContent } = await early.tool("events_poll", { limit: 200 });
      return structuredContent.events.find(({ type }) => type === "gap");
    });
    assert.ok(typeof gap.reason === "string" && gap.reason, JSON.stringify(gap));
    const waiter = early.postTool("events_wait", {
      after_cursor: gap.cursor,
      timeout_ms: 20_000,
      session_key: MAIN,
    });
    await operator.says(MAIN, "after the restart");
    assert.equal(
      unwrap(await early.answer(waiter)).structuredContent.event?.text,
      "after the restart",
    );
  });
  await checks.check("Gateway back: messages_send reaches telegram", async () => {
    const result = await eventually(30_000, async () => {
      const sent = await early.tool("messages_send", { session_key: MAIN, text: "still here" });
      return !sent.isError && sent;
    });
    assert.equal(result.content[0].text, "sent");
    assert.equal(telegram.sent.at(-1).text, "still here");
  });
  await checks.check("both clients end with exit 0", async () => {
    const exits = await Promise.all([early.end(), late.end()]);
    assert.deepEqual(
      exits.map(({ code }) => code),
      [0, 0],
    );
    assert.deepEqual([early.impure, late.impure], [[], []]);
  });
  operator.close();
}

/** Tries until `act` returns something true; the last result or error tells why it never did. */
async function eventually(limitMs, act) {
  const deadline = Date.now() + limitMs;
  for (;;) {
    const result = await act();
    if (result) return result;
    if (Date.now() > deadline) throw new Error(`not so after ${limitMs} ms`);
    await sleep(200);
  }
}
