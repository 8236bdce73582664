// What a server asks and tells by itself, through drawspan: the reference server everything, which has
// tools of its own for clients that can be asked, and the official TypeScript client.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { Server } from "../lib/harness.mjs";
import { marked, within } from "../lib/processes.mjs";

const LIMIT_MS = 30_000;
const ROOT = { uri: "file:///span", name: "span" };

export async function conversation(checks, { peers, drawspan, home, env, upstream }) {
  const require = createRequire(`${peers}/package.json`);
  const sdk = (file) => require(`@modelcontextprotocol/sdk/${file}.js`);
  const { Client } = sdk("client/index");
  const { StdioClientTransport } = sdk("client/stdio");
  const { StreamableHTTPClientTransport } = sdk("client/streamableHttp");
  const types = sdk("types");
  const target = ["--", ...upstream.command];
  const serve = [drawspan, "serve", "--listen", "http://127.0.0.1:{port}", ...target];
  const http = await new Server(serve, { env: { ...env }, cwd: home }).start();
  const places = {
    stdio: () =>
      new StdioClientTransport({
        command: drawspan,
        args: ["serve", ...target],
        env: marked(env),
        cwd: home,
        stderr: "ignore",
      }),
    http: () => new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${http.port}/mcp`)),
  };
  for (const [name, transport] of Object.entries(places)) {
    const check = (what, act) => checks.check(`everything behind drawspan over ${name}: ${what}`, act);
    const { client, heard } = asked(Client, types);
    try {
      await within(LIMIT_MS, "connect", client.connect(transport()));
      const call = (tool, given = {}) =>
        within(LIMIT_MS, tool, client.callTool({ name: tool, arguments: given }));
      await check("it is the server itself that answers", () => {
        assert.equal(client.getServerVersion().name, "mcp-servers/everything");
        assert.ok(client.getInstructions()?.length > 100);
        assert.equal(client.getServerCapabilities().resources.subscribe, true);
      });
      await check("sampling", async () => {
        const result = await call("trigger-sampling-request", { prompt: "hi", maxTokens: 10 });
        assert.ok(result.content[0].text.includes("said by the model"), JSON.stringify(result));
      });
      await check("elicitation", async () => {
        const { content } = await call("trigger-elicitation-request");
        assert.ok(JSON.stringify(content).includes("Ada"), JSON.stringify(content));
      });
      await check("roots", async () => {
        const { content } = await call("get-roots-list");
        assert.ok(content[0].text.includes(ROOT.uri), JSON.stringify(content));
      });
      await check("progress", async () => {
        const seen = [];
        const params = { name: "trigger-long-running-operation", arguments: { duration: 1, steps: 4 } };
        const onprogress = ({ progress }) => seen.push(progress);
        await within(LIMIT_MS, "the operation", client.callTool(params, undefined, { onprogress }));
        // This client forgets the last report when the answer comes with it in one piece.
        assert.deepEqual(seen.slice(0, 3), [1, 2, 3]);
      });
      await check("resources, prompts, completion", async () => {
        const { resources } = await client.listResources();
        assert.equal(resources.length, 7);
        const read = await client.readResource({ uri: resources[0].uri });
        assert.ok(read.contents[0].text.length > 100);
        const { resourceTemplates } = await client.listResourceTemplates();
        assert.equal(resourceTemplates.length, 2);
        const prompt = await client.getPrompt({ name: "args-prompt", arguments: { city: "Turin" } });
        assert.ok(prompt.messages[0].content.text.includes("Turin"));
        const ref = { type: "ref/prompt", name: "completable-prompt" };
        const argument = { name: "department", value: "E" };
        const { completion } = await client.complete({ ref, argument });
        assert.deepEqual(completion.values, ["Engineering"]);
      });
      await check("log messages", async () => {
        await client.setLoggingLevel("debug");
        await call("toggle-simulated-logging");
        await within(LIMIT_MS, "a log message", heard("notifications/message"));
        await call("toggle-simulated-logging");
      });
      await check("updates of a resource", async () => {
        const uri = "demo://resource/dynamic/text/1";
        await client.subscribeResource({ uri });
        await call("toggle-subscriber-updates");
        const { params } = await within(LIMIT_MS, "an update", heard("notifications/resources/updated"));
        assert.equal(params.uri, uri);
      });
    } catch (error) {
      checks.fail(`everything behind drawspan over ${name}`, error.stack);
    } finally {
      await within(LIMIT_MS, "close", client.close());
    }
  }
  const how = await http.stop();
  if (how.code !== 0) checks.fail("drawspan ends by itself when asked to", JSON.stringify(how));
}

/** A client that answers whatever it is asked; `heard` gives the next notification of a method. */
function asked(Client, types) {
  const capabilities = { sampling: {}, elicitation: { form: {} }, roots: { listChanged: true } };
  const client = new Client({ name: "span", version: "1.0.0" }, { capabilities });
  client.setRequestHandler(types.CreateMessageRequestSchema, async () => ({
    role: "assistant",
    model: "none",
    content: { type: "text", text: "said by the model" },
  }));
  client.setRequestHandler(types.ElicitRequestSchema, async ({ params }) => ({
    action: "accept",
    content: filledIn(params.requestedSchema),
  }));
  client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [ROOT] }));
  const waiting = new Map();
  client.fallbackNotificationHandler = async (notification) => {
    waiting.get(notification.method)?.(notification);
    waiting.delete(notification.method);
  };
  const heard = (method) => new Promise((resolve) => waiting.set(method, resolve));
  return { client, heard };
}

/** The fields of a form that must be filled in; a name where text is asked for. */
function filledIn({ properties, required = [] }) {
  const value = ({ type }) => ({ boolean: true, integer: 1, number: 1 })[type] ?? "Ada";
  return Object.fromEntries(required.map((name) => [name, value(properties[name])]));
}
