// The official TypeScript client (1.x) over stdio against drawspan on the real Gateway.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { SLACK } from "./gateway.mjs";
import { marked, within } from "./processes.mjs";

export async function typescriptClient(checks, { peers, gateway, operator, command }) {
  const require = createRequire(`${peers}/package.json`);
  const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
  const [program, ...args] = command;
  const transport = new StdioClientTransport({
    command: program,
    args,
    env: marked(gateway.env),
    cwd: gateway.home,
    stderr: "ignore",
  });
  const client = new Client({ name: "peers-typescript", version: "1.0.0" });
  const check = (name, act) => checks.check(`TypeScript SDK: ${name}`, act);
  const announced = new Promise((resolve) => {
    client.fallbackNotificationHandler = async (notification) => resolve(notification);
  });

  await check("connect", async () => {
    await within(20_000, "connect", client.connect(transport));
    assert.equal(client.getServerVersion().name, "openclaw");
    assert.deepEqual(client.getServerCapabilities().experimental, {
      "claude/channel": {},
      "claude/channel/permission": {},
    });
  });
  await check("listTools", async () => {
    const { tools } = await client.listTools();
    assert.equal(tools.length, 9);
    assert.equal(tools[0].name, "conversations_list");
  });
  await check("callTool", async () => {
    const result = await client.callTool({
      name: "conversation_get",
      arguments: { session_key: "main" },
    });
    assert.equal(result.structuredContent.conversation.sessionKey, "agent:main:main");
  });
  await check("callTool with an error result", async () => {
    const result = await client.callTool({
      name: "messages_send",
      arguments: { session_key: "agent:main:nope", text: "hi" },
    });
    assert.equal(result.isError, true);
  });
  await check("a notification", async () => {
    await operator.hears(SLACK, "for the SDK client");
    const { method, params } = await within(20_000, "channel notification", announced);
    assert.equal(method, "notifications/claude/channel");
    assert.equal(params.content, "for the SDK client");
  });
  await check("close", () => within(10_000, "close", client.close()));
}
