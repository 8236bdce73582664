// Real clients against one server on every transport it has.
//
//   run.mjs PEERS [--stdio "COMMAND"] [--http "COMMAND"] [--mcp URL] [--sse URL] [--facts FILE]
//
// Started by ./run. COMMAND is split at blanks; in it {port}, {gateway} and {token} become the port
// to listen on, the URL of a Gateway and the file with its token. --http serves /mcp and /sse; a
// URL given for one of them is used instead. --facts says what clients of another server have to
// see.
import fs from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { startEmbeddedGateway } from "../lib/embedded-gateway.mjs";
import { harness, runToEnd, Server } from "../lib/harness.mjs";
import { marked } from "../lib/processes.mjs";
import { CONVERSATION, FACTS } from "./facts.mjs";
import { inspector } from "./inspector.mjs";
import { openclaw } from "./openclaw.mjs";
import { typescriptClients } from "./typescript.mjs";

const WHOLE_RUN_MS = 240_000;
const here = path.dirname(new URL(import.meta.url).pathname);
const drawspan = path.resolve(
  process.env.DRAWSPAN ?? path.join(here, "../../../target/release/drawspan"),
);
const serve = `${drawspan} serve --gateway {gateway} --token-file {token}`;
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    stdio: { type: "string", default: serve },
    http: { type: "string", default: `${serve} --listen http://127.0.0.1:{port}` },
    mcp: { type: "string" },
    sse: { type: "string" },
    facts: { type: "string" },
  },
});
const [peers] = positionals;

await harness("clients", WHOLE_RUN_MS, async ({ checks, home }) => {
  const facts = values.facts ? JSON.parse(fs.readFileSync(values.facts, "utf8")) : FACTS;
  const gateway = values.facts
    ? undefined
    : await startEmbeddedGateway(drawspan, home, [CONVERSATION]);
  const put = (part) => part.replace("{gateway}", gateway?.url).replace("{token}", gateway?.token);
  const fill = (template) => template.split(/\s+/).filter(Boolean).map(put);
  const server = values.mcp ? undefined : await new Server(fill(values.http)).start();
  const origin = `http://127.0.0.1:${server?.port}`;
  const env = { HOME: home, PATH: process.env.PATH };
  // 2026-07-28 has no pair of GET and POST.
  const places = [
    { name: "stdio", command: fill(values.stdio), env, cwd: home, modern: !facts.legacyOnly },
    { name: "sse", url: values.sse ?? `${origin}/sse`, modern: false },
    { name: "http", url: values.mcp ?? `${origin}/mcp`, modern: !facts.legacyOnly },
  ];
  const given = { peers, facts, places, home, post: gateway?.post };
  await inspector(checks, given);
  await typescriptClients(checks, given);
  await pythonClient(checks, given);
  await openclaw(checks, given);
  if (server) {
    const how = await server.stop();
    if (how.code === 0) checks.pass("the server ends by itself when asked to");
    else checks.fail("the server ends by itself when asked to", JSON.stringify(how));
    if (checks.failed) console.log(`the server said last:\n${server.tail}`);
  }
});

async function pythonClient(checks, { facts, places }) {
  const given = {
    facts,
    places: places.map((place) => ({ ...place, env: place.env && marked(place.env) })),
  };
  const python = path.join(peers, "venv/bin/python");
  const command = [python, path.join(here, "python.py"), JSON.stringify(given)];
  const { code, out, err } = await runToEnd(command, { limitMs: 100_000 });
  const lines = out
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  for (const { check, ok, detail } of lines)
    if (ok) checks.pass(`Python SDK ${check}`);
    else checks.fail(`Python SDK ${check}`, detail);
  if (code !== 0 || lines.length === 0)
    checks.fail("Python SDK", `it ended with ${code}: ${err.slice(-1500)}`);
}
