// drawspan's command line against real servers, each on every transport it has.
//
//   run.mjs PEERS [NAME…]      only the servers with these names
//
// Started by ./run. What is expected stands in subjects.mjs.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { harness, quietPort, runToEnd, Server } from "../lib/harness.mjs";
import { leftovers, marked, sleep } from "../lib/processes.mjs";
import { restarts } from "./restarts.mjs";
import { subjects } from "./subjects.mjs";

const WHOLE_RUN_MS = 420_000;
const LIMIT_MS = 30_000;
const here = path.dirname(new URL(import.meta.url).pathname);
const drawspan = path.resolve(
  process.env.DRAWSPAN ?? path.join(here, "../../../target/release/drawspan"),
);
const [peers, ...names] = process.argv.slice(2);

await harness("servers", WHOLE_RUN_MS, async ({ checks, home }) => {
  const env = { HOME: home, PATH: process.env.PATH };
  for (const subject of subjects(peers, home)) {
    if (names.length && !names.includes(subject.name)) continue;
    for (const place of subject.places) {
      const what = `${subject.name} over ${place.name}`;
      const server = place.path && (await listen(place, env));
      for (const [era, revision] of Object.entries(place.eras)) {
        const target = configured(home, place, server?.port, era);
        await visit(checks, `${what}, ${era}`, { subject, place, revision, target, env, home });
      }
      await server?.stop();
      await restarts(checks, what, { drawspan, subject, place, env, home, configured, listen });
    }
  }
});

async function listen(place, env, port) {
  const server = new Server(place.command, { env: { ...env }, port });
  // The port is needed in the environment of some, so it is chosen first.
  if (place.env) {
    server.port ??= await quietPort();
    const put = ([name, value]) => [name, value.replaceAll("{port}", `${server.port}`)];
    Object.assign(server.env, Object.fromEntries(Object.entries(place.env).map(put)));
  }
  return server.start();
}

/** Writes a configuration whose server `s` is this place; the options that use it. */
function configured(home, place, port, era) {
  const values = Object.entries(place.env ?? {}).map(([k, v]) => [k, v.replaceAll("{era}", era)]);
  const [command, ...args] = place.command;
  const entry = place.path
    ? { url: `http://127.0.0.1:${port}${place.path}`, transport: place.kind }
    : // The mark is not inherited by what drawspan starts, unless it is told to.
      { command, args, env: marked(Object.fromEntries(values)) };
  const file = path.join(home, "config.json");
  fs.writeFileSync(file, JSON.stringify({ mcpServers: { s: { ...entry, protocol: era } } }));
  return ["--config", file];
}

async function visit(checks, what, { subject, place, revision, target, env, home }) {
  const run = async (command, ...args) => {
    const argv = [drawspan, command, ...args, ...target, "--json"];
    return runToEnd(argv, { env, cwd: home, limitMs: LIMIT_MS });
  };
  const check = (name, act) => checks.check(`${what}: ${name}`, act);

  await check("probe", async () => {
    const { servers, diagnostics } = printed(await run("probe", "s"));
    const found = servers.s;
    assert.equal(found.ok, true, JSON.stringify(servers));
    assert.equal(found.protocolVersion, revision);
    assert.equal(found.transport, place.kind);
    assert.deepEqual(found.toolNames, subject.tools);
    assert.equal(found.tools, subject.tools.length);
    assert.equal(!!found.resources, subject.resources > 0);
    assert.equal(!!found.prompts, subject.prompts.length > 0);
    const errors = diagnostics.filter(({ level }) => (level ?? "error") === "error");
    assert.deepEqual(errors, []);
  });
  await check("list", async () => {
    const { server, protocolVersion, tools, diagnostics } = printed(await run("list", "s"));
    assert.equal(server, "s");
    assert.equal(protocolVersion, revision);
    assert.deepEqual(tools.map(({ name }) => name), subject.tools);
    for (const tool of tools) assert.equal(tool.inputSchema.type, "object", tool.name);
    const leftOut = diagnostics.filter(({ code }) => code === "task-only");
    assert.deepEqual(leftOut.map(({ tool }) => tool), subject.leftOut ?? []);
  });
  if (subject.resources)
    await check("list --resources", async () => {
      const { resources } = printed(await run("list", "s", "--resources"));
      assert.equal(resources.length, subject.resources);
    });
  if (subject.prompts.length)
    await check("list --prompts", async () => {
      const { prompts } = printed(await run("list", "s", "--prompts"));
      assert.deepEqual(prompts.map(({ name }) => name), subject.prompts);
    });
  for (const { tool, words = [], args, code = 0, gives } of subject.calls) {
    const given = args ? ["--args", JSON.stringify(args)] : words;
    await check(`call ${tool} ${given.join(" ")}`, async () => {
      const ended = await run("call", "s", tool, ...given);
      assert.equal(ended.code, code, said(ended));
      if (gives) assert.ok(gives(printed(ended)), said(ended));
    });
  }
  for (const { uri, gives } of subject.reads)
    await check(`read ${uri}`, async () => {
      const ended = await run("read", "s", uri);
      assert.ok(gives(printed(ended)), said(ended));
    });
  for (const { prompt, words = [], gives } of subject.asks)
    await check(`prompt ${prompt}`, async () => {
      const ended = await run("prompt", "s", prompt, ...words);
      assert.ok(gives(printed(ended)), said(ended));
    });
  if (!place.path) await check("nothing is left behind", nothingLeft);
}

/** Nothing that drawspan started for a command outlives it for long. */
async function nothingLeft() {
  let left = leftovers();
  for (let tries = 0; left?.length && tries < 20; tries++) {
    await sleep(50);
    left = leftovers();
  }
  assert.deepEqual(left ?? [], []);
}

function printed(ended) {
  assert.equal(ended.code, 0, said(ended));
  return JSON.parse(ended.out);
}

function said({ code, signal, out, err }) {
  return `it ended with ${code ?? signal}\n${out.slice(0, 800)}\n${err.slice(-1500)}`;
}
