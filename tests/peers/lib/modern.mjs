// 2026-07-28 over stdio, request by request: no handshake, metadata on each.
import assert from "node:assert/strict";
import { sleep } from "./processes.mjs";
import { unwrap } from "./mcp-client.mjs";

const KEY = "io.modelcontextprotocol/";
const REVISION = "2026-07-28";
const SUBSCRIPTION = `${KEY}subscriptionId`;

const meta = (more) => ({
  [`${KEY}protocolVersion`]: REVISION,
  [`${KEY}clientCapabilities`]: {},
  [`${KEY}clientInfo`]: { name: "peers", version: "1.0.0" },
  ...more,
});

/** Runs the checks against one fresh process. */
export async function modernOverStdio(checks, open) {
  const client = open();
  const ask = (method, params = {}, more) =>
    client.request(method, { ...params, _meta: meta(more) });
  const check = (name, act) => checks.check(`2026-07-28: ${name}`, act);

  await check("server/discover", async () => {
    const { result } = await ask("server/discover");
    assert.equal(result.resultType, "complete");
    assert.ok(result.supportedVersions.includes(REVISION), "supportedVersions names the revision");
    assert.ok(result.capabilities.tools, "tools are announced");
    assert.ok(Number.isInteger(result.ttlMs) && result.ttlMs >= 0, "ttlMs");
    assert.ok(["public", "private"].includes(result.cacheScope), "cacheScope");
    assert.equal(result._meta?.[`${KEY}serverInfo`]?.name, "openclaw");
  });
  await check("tools/list", async () => {
    const { result } = await ask("tools/list");
    assert.equal(result.resultType, "complete");
    assert.equal(result.tools.length, 9);
    assert.ok(Number.isInteger(result.ttlMs), "ttlMs");
    assert.ok(["public", "private"].includes(result.cacheScope), "cacheScope");
  });
  await check("tools/call", async () => {
    const { result } = await ask("tools/call", { name: "conversations_list", arguments: {} });
    assert.equal(result.resultType, "complete");
    assert.ok(!result.isError, JSON.stringify(result.content));
    assert.equal(result.structuredContent.conversations.length, 2);
    assert.match(result.content[0].text, /^conversations: 2\n/);
  });
  await check("a tool's own error", async () => {
    const { result } = await ask("tools/call", {
      name: "conversation_get",
      arguments: { session_key: "agent:main:nope" },
    });
    assert.equal(result.resultType, "complete");
    assert.equal(result.isError, true);
  });
  await check("an unknown version is -32022", async () => {
    const { error } = await ask("tools/list", {}, { [`${KEY}protocolVersion`]: "2099-01-01" });
    assert.equal(error.code, -32022);
    assert.equal(error.data.requested, "2099-01-01");
    assert.ok(error.data.supported.includes(REVISION), JSON.stringify(error.data));
  });
  await check("missing clientCapabilities is -32602", async () => {
    const { error } = await client.request("tools/list", {
      _meta: { [`${KEY}protocolVersion`]: REVISION },
    });
    assert.equal(error.code, -32602);
  });
  await check("ping is gone", async () => {
    assert.equal((await ask("ping")).error?.code, -32601);
  });
  await check("subscriptions/listen is acknowledged, cancelling ends it", async () => {
    const id = listen(client);
    const { params } = await acknowledged(client, id);
    assert.deepEqual(
      Object.keys(params.notifications),
      ["toolsListChanged"],
      "what the server has, and no more",
    );
    client.notify("notifications/cancelled", { requestId: id });
    await sleep(300);
    await ask("tools/list");
    assert.equal(
      client.received.filter((message) => message.id === id).length,
      0,
      "no answer after the cancel",
    );
  });
  await check("a handshake in the same process", async () => {
    const { protocolVersion } = unwrap(await client.initialize("2025-06-18"));
    assert.equal(protocolVersion, "2025-06-18");
    assert.deepEqual((await client.request("ping")).result, {});
    assert.equal((await ask("tools/list")).result.resultType, "complete");
  });
  await check("the end of input ends a subscription, exit 0", async () => {
    const id = listen(client);
    await acknowledged(client, id);
    const exit = client.end();
    const { result } = await client.answer(id, 5_000);
    assert.equal(result.resultType, "complete");
    assert.equal(result._meta[SUBSCRIPTION], id);
    assert.deepEqual([(await exit).code, client.impure], [0, []]);
  });
}

function listen(client) {
  const notifications = { toolsListChanged: true, promptsListChanged: true };
  return client.post("subscriptions/listen", { notifications, _meta: meta() });
}

function acknowledged(client, id) {
  const wanted = (m) =>
    m.method === "notifications/subscriptions/acknowledged" &&
    m.params?._meta?.[SUBSCRIPTION] === id;
  return client.message("acknowledgement", wanted, 5_000);
}
