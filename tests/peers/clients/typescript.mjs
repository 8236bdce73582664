// The official TypeScript clients, 1.x and 2.x, on every transport.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { marked, within } from "../lib/processes.mjs";
import { CONVERSATION, expectCalled, expectTools } from "./facts.mjs";

const MODERN = "2026-07-28";
const LEGACY = "2025-11-25";
const LIMIT_MS = 20_000;

export async function typescriptClients(checks, { peers, facts, places, post }) {
  const require = createRequire(`${peers}/package.json`);
  const one = firstGeneration(require);
  const two = await secondGeneration(peers);
  for (const place of places) {
    await oneClient(`1.x over ${place.name}`, one(place), LEGACY);
    await oneClient(`2.x over ${place.name}, legacy`, two(place, "legacy"), LEGACY);
    if (!place.modern) continue;
    await oneClient(`2.x over ${place.name}, auto`, two(place, "auto"), MODERN);
    await oneClient(`2.x over ${place.name}, ${MODERN}`, two(place, { pin: MODERN }), MODERN);
  }

  async function oneClient(name, { client, transport, spoken }, version) {
    await checks.check(`TypeScript SDK ${name}`, async () => {
      let announced;
      const heard = new Promise((resolve) => (announced = resolve));
      client.fallbackNotificationHandler = async (notification) => announced(notification);
      try {
        await within(LIMIT_MS, "connect", client.connect(transport));
        await within(LIMIT_MS, "the session", use(client, version));
        assert.equal(spoken?.() ?? version, version);
        if (post && version !== MODERN) await hears(heard);
      } finally {
        await within(LIMIT_MS, "close", client.close());
      }
    });
  }

  async function use(client) {
    const { tools } = await client.listTools();
    expectTools(
      facts,
      tools.map(({ name }) => name),
    );
    const { name, arguments: given } = facts.call;
    expectCalled(facts, await client.callTool({ name, arguments: given }));
    if (!facts.failing) return;
    const failed = await client.callTool(facts.failing);
    assert.equal(failed.isError, true, JSON.stringify(failed).slice(0, 500));
  }

  /** A message from the server that no request asked for. */
  async function hears(heard) {
    // Over HTTP the stream for it opens beside the first requests.
    const again = setInterval(() => post(CONVERSATION, "for the SDK"), 500);
    try {
      const { method, params } = await within(10_000, "a channel message", heard);
      assert.equal(method, "notifications/claude/channel");
      assert.equal(params.content, "for the SDK");
    } finally {
      clearInterval(again);
    }
  }
}

/** `place` to `{client, transport}` of @modelcontextprotocol/sdk. */
function firstGeneration(require) {
  const sdk = (file) => require(`@modelcontextprotocol/sdk/client/${file}.js`);
  const { Client } = sdk("index");
  const { StdioClientTransport } = sdk("stdio");
  const { SSEClientTransport } = sdk("sse");
  const { StreamableHTTPClientTransport } = sdk("streamableHttp");
  const kinds = {
    stdio: (place) => new StdioClientTransport(stdio(place)),
    sse: ({ url }) => new SSEClientTransport(new URL(url)),
    http: ({ url }) => new StreamableHTTPClientTransport(new URL(url)),
  };
  return (place) => ({
    client: new Client({ name: "peers-typescript", version: "1.0.0" }),
    transport: kinds[place.name](place),
  });
}

/** `place` and an era to `{client, transport, spoken}` of @modelcontextprotocol/client. */
async function secondGeneration(peers) {
  const at = `${peers}/node_modules/@modelcontextprotocol/client/dist`;
  const { Client, SSEClientTransport, StreamableHTTPClientTransport } = await import(
    `${at}/index.mjs`
  );
  const { StdioClientTransport } = await import(`${at}/stdio.mjs`);
  const kinds = {
    stdio: (place) => new StdioClientTransport(stdio(place)),
    sse: ({ url }) => new SSEClientTransport(new URL(url)),
    http: ({ url }) => new StreamableHTTPClientTransport(new URL(url)),
  };
  return (place, mode) => {
    const me = { name: "peers-typescript", version: "2.0.0" };
    const client = new Client(me, { versionNegotiation: { mode } });
    return {
      client,
      transport: kinds[place.name](place),
      spoken: () => client.getNegotiatedProtocolVersion(),
    };
  };
}

function stdio({ command, env, cwd }) {
  const [program, ...args] = command;
  return { command: program, args, env: marked(env), cwd, stderr: "ignore" };
}
