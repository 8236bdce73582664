// Runs drawspan and the original against real OpenClaw Gateways and compares them.
//
// Started by ./run, with the directory of the peers as its argument.
//
// Two Gateways are seeded alike, one for each side, because the script changes what is in them.
// Both scripts run at the same time; after its own, drawspan's Gateway serves the official clients
// and the other checks.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { Checks } from "./lib/checks.mjs";
import { compare, normalise } from "./lib/compare.mjs";
import { DIFFERENCES } from "./lib/differences.mjs";
import { freePort, Gateway } from "./lib/gateway.mjs";
import { noProcessLeft } from "./lib/harness.mjs";
import { McpClient } from "./lib/mcp-client.mjs";
import { modernOverStdio } from "./lib/modern.mjs";
import { onlyDrawspan } from "./lib/only-drawspan.mjs";
import { Operator } from "./lib/operator.mjs";
import { killAll, marked, start, stopAll } from "./lib/processes.mjs";
import { runScript } from "./lib/script.mjs";
import { typescriptClient } from "./lib/sdk-typescript.mjs";
import { Model, Telegram } from "./lib/stand-ins.mjs";

const WHOLE_RUN_MS = 350_000;
const here = path.dirname(fileURLToPath(import.meta.url));
const peers = process.argv[2];
const drawspan = path.resolve(
  process.env.DRAWSPAN ?? path.join(here, "../../target/release/drawspan"),
);
const checks = new Checks();
const homes = [];

process.once("SIGINT", () => abort("interrupted", 130));
process.once("SIGTERM", () => abort("terminated", 143));
process.on("exit", () => {
  killAll();
  for (const home of homes) fs.rmSync(home, { recursive: true, force: true, maxRetries: 5 });
});
setTimeout(() => abort(`not done after ${WHOLE_RUN_MS} ms`, 1), WHOLE_RUN_MS).unref();

if (spawnSync(drawspan, ["version"]).status !== 0) {
  console.error(
    `peers: ${drawspan} does not run: build it with cargo build --release, or set DRAWSPAN`,
  );
  process.exit(1);
}
try {
  await main();
} catch (error) {
  checks.fail("the run itself", error.stack);
}
await stopAll();
await noProcessLeft(checks);
process.exit(checks.close() ? 0 : 1);

async function main() {
  const model = await Model.start();
  const base = Date.now() - 3_600_000;
  const sides = await Promise.all([openSide(original, base, model), openSide(ours, base, model)]);
  const [theirs, mine] = sides;
  // Nothing is printed before both scripts are through, so that the lines stay in order.
  const [theirRecord, myRecord] = await Promise.all(sides.map((side) => runScript(side)));
  reportParity(theirs, theirRecord, mine, myRecord);
  await theirs.gateway.stop();
  await modernOverStdio(checks, () => mine.open());
  await typescriptClient(checks, { ...mine, peers, command: mine.command() });
  await pythonClient(mine);
  await onlyDrawspan(checks, mine);
}

/** How each side is started. `negotiate` sees what a version asked for in `initialize` leads to. */
function original(gateway) {
  return {
    name: "original",
    command: ({ tokenFile = gateway.tokenFile, more = [] } = {}) => [
      "openclaw",
      "mcp",
      "serve",
      "--url",
      gateway.url,
      "--token-file",
      tokenFile,
      ...more,
    ],
    // It takes seconds to start, and lets a client initialise as often as it likes.
    negotiate: (_side, client, version) => client.initialize(version),
  };
}

function ours(gateway) {
  return {
    name: "drawspan",
    command: ({ tokenFile = gateway.tokenFile, more = [], bare = false } = {}) =>
      bare
        ? [drawspan, "serve"]
        : [drawspan, "serve", "--url", gateway.url, "--token-file", tokenFile, ...more],
    async negotiate(side, _client, version) {
      const client = side.open();
      const answer = await client.initialize(version);
      await client.end();
      return answer;
    },
  };
}

async function openSide(kind, base, model) {
  const home = fs.mkdtempSync(path.join(os.tmpdir(), "drawspan-peers-"));
  homes.push(home);
  const telegram = await Telegram.start();
  const standIns = { telegram: telegram.url, model: `${model.url}/v1` };
  const gateway = new Gateway({ peers, home, port: await freePort(), base, standIns });
  const wrongTokenFile = path.join(home, "wrong-token");
  fs.writeFileSync(wrongTokenFile, "wrong-secret\n", { mode: 0o600 });
  gateway.start();
  await gateway.ready();
  const { name, command, negotiate } = kind(gateway);
  const side = {
    name,
    command,
    gateway,
    telegram,
    wrongTokenFile,
    opened: [],
    operator: await Operator.connect(gateway),
  };
  side.open = (options) => {
    const client = new McpClient(command(options), { env: gateway.env, cwd: home });
    side.opened.push(client);
    return client;
  };
  side.negotiate = (client, version) => negotiate(side, client, version);
  return side;
}

function reportParity(theirs, theirRecord, mine, myRecord) {
  for (const [side, record] of [
    [theirs, theirRecord],
    [mine, myRecord],
  ]) {
    for (const broken of record.broken) checks.fail(`script on ${side.name}`, broken);
  }
  const { rows, unused } = compare(normalised(theirs, theirRecord), normalised(mine, myRecord));
  const reasons = new Map(DIFFERENCES.map(({ name, reason }) => [name, reason]));
  const seen = new Set();
  for (const { step, verdict, names, detail } of rows) {
    if (verdict === "different") checks.fail(`parity: ${step}`, detail);
    else if (verdict === "same") checks.pass(`parity: ${step}`, "same");
    else checks.pass(`parity: ${step}  [${names.join(", ")}]`, "by design");
    names?.forEach((name) => seen.add(name));
  }
  for (const name of unused)
    checks.fail(
      `parity: the difference "${name}"`,
      "it was not seen; the table in lib/compare.mjs names it",
    );
  console.log("\ndifferences by design:");
  for (const name of seen) console.log(`  ${name}: ${reasons.get(name)}`);
  console.log("\nfirst answer and resident memory:");
  for (const side of [theirs, mine])
    console.log(
      `  ${side.name}: ${side.firstAnswerMs} ms, ${Math.round(side.residentKib / 102.4) / 10} MiB`,
    );
  console.log();
}

function normalised(side, record) {
  const rows = [...record.steps];
  return new Map(rows.map(([step, result]) => [step, normalise(side.gateway, result)]));
}

async function pythonClient(side) {
  const given = { command: side.command(), env: marked(side.gateway.env), cwd: side.gateway.home };
  const child = start([
    path.join(peers, "venv/bin/python"),
    path.join(here, "lib/sdk_python.py"),
    JSON.stringify(given),
  ]);
  let out = "";
  let err = "";
  child.stdout.on("data", (data) => (out += data));
  child.stderr.on("data", (data) => (err += data));
  child.stdin.end();
  const { code } = await child.ended;
  const lines = out
    .trim()
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line));
  for (const { check, ok, detail } of lines) {
    if (ok) checks.pass(`Python SDK: ${check}`);
    else checks.fail(`Python SDK: ${check}`, detail);
  }
  if (code !== 0 || lines.length === 0)
    checks.fail("Python SDK", `the script ended with ${code}: ${err.slice(-1500)}`);
}

function abort(why, code) {
  console.error(`peers: ${why}`);
  process.exit(code);
}
