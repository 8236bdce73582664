// The official conformance suite against a server, read strictly.
//
//   run.mjs PEERS                  examples/everything_server, beside the program under test
//   run.mjs PEERS URL              a server that is up already
//   run.mjs PEERS -- COMMAND ARG…  a server to start; {port} in an argument becomes a free port
//
// Started by ./run. One server process serves all four runs, one after the other.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { harness, runToEnd, Server, splitCommand } from "../lib/harness.mjs";
import { EXCEPTIONS } from "./exceptions.mjs";
import { judge, readResults } from "./strict.mjs";

const RUNS = [
  { name: "2025-11-25", scenarios: 33, select: ["--requirements", "2025-11-25"] },
  { name: "2026-07-28", scenarios: 50, select: ["--requirements", "2026-07-28"] },
  {
    name: "all 2025-06-18",
    scenarios: 27,
    select: ["--suite", "all", "--spec-version", "2025-06-18"],
  },
  {
    name: "all 2025-03-26",
    scenarios: 1,
    select: ["--suite", "all", "--spec-version", "2025-03-26"],
  },
];
const ONE_RUN_MS = 120_000;

const [peers, ...argv] = process.argv.slice(2);
const { options, command = everythingServer() } = splitCommand(argv);
const [given] = options;
if (options.length > 1 || (given && argv.includes("--"))) {
  console.error("conformance: give the URL of a server, or -- and the command that starts one");
  process.exit(2);
}
const suite = [
  path.join(peers, "bin/node"),
  path.join(peers, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
];

await harness("conformance", RUNS.length * ONE_RUN_MS + 60_000, async ({ checks, home }) => {
  const server = given ? undefined : await new Server(command).start();
  const url = given ?? `http://127.0.0.1:${server.port}/mcp`;
  const used = new Set();
  const totals = [];
  for (const run of RUNS) totals.push(await oneRun(checks, { ...run, url, home, used }));
  for (const exception of EXCEPTIONS)
    if (!used.has(exception))
      checks.fail(`the exception for ${exception.scenario}`, "it was not needed; remove it");
  console.log("\nscenarios that passed, strictly:");
  for (const total of totals) console.log(`  ${total}`);
  console.log();
  if (checks.failed && server) console.log(`the server said last:\n${server.tail}`);
});

function everythingServer() {
  const here = path.dirname(new URL(import.meta.url).pathname);
  const drawspan = process.env.DRAWSPAN ?? path.join(here, "../../../target/release/drawspan");
  const program = path.resolve(path.dirname(drawspan), "examples/everything_server");
  return [program, "--listen", "http://127.0.0.1:{port}"];
}

async function oneRun(checks, { name, select, scenarios, url, home, used }) {
  const expected = listed(select);
  if (expected.length !== scenarios)
    checks.fail(`${name}: the suite`, `it lists ${expected.length} scenarios, not ${scenarios}`);
  const out = path.join(home, name.replaceAll(" ", "-"));
  const began = Date.now();
  const said = await runSuite(["server", "--url", url, ...select, "-o", out]);
  const seconds = ((Date.now() - began) / 1000).toFixed(1);
  const results = readResults(out, "server-");
  let passed = 0;
  let excusedCount = 0;
  for (const scenario of new Set([...expected, ...results.keys()])) {
    const { shortfalls, note } = judge(results.get(scenario));
    const excused = (kind) => {
      const found = EXCEPTIONS.find((it) => it.scenario === scenario && it.shortfall === kind);
      if (found) used.add(found);
      return found;
    };
    const reasons = shortfalls.map(({ kind }) => excused(kind)?.reason);
    if (shortfalls.length === 0) {
      checks.pass(`${name}: ${scenario} (${note})`);
      passed++;
    } else if (reasons.every(Boolean)) {
      checks.pass(`${name}: ${scenario} (${reasons.join("; ")})`, "excused");
      excusedCount++;
    } else {
      const why = [...new Set(shortfalls.map(({ text }) => text))].join("\n");
      checks.fail(
        `${name}: ${scenario}`,
        why + (results.has(scenario) ? "" : `\n${said.about(scenario)}`),
      );
    }
  }
  if (said.how.code === null)
    checks.fail(`${name}: the suite`, `it was cut off: ${said.text.slice(-500)}`);
  const also = excusedCount ? `, ${excusedCount} excused` : "";
  return `${name}: ${passed}/${scenarios}${also}, in ${seconds} s`;
}

/** The scenarios the suite has for a selection, by its own list. */
function listed(select) {
  const arguments_ = select[0] === "--suite" ? ["--server", ...select.slice(2)] : select;
  const { stdout, status, stderr } = spawnSync(suite[0], [suite[1], "list", ...arguments_], {
    encoding: "utf8",
    timeout: 30_000,
  });
  if (status !== 0) throw new Error(`conformance list ended with ${status}: ${stderr}`);
  const names = [];
  let heading = "";
  for (const line of stdout.split("\n")) {
    const [, name, mark] = /^ +- (\S+)(?: \[(.*)\])?$/.exec(line) ?? [];
    if (/^\S/.test(line)) heading = line;
    else if (name && (heading.startsWith("Server scenarios") || mark === "server"))
      names.push(name);
  }
  return names;
}

async function runSuite(arguments_) {
  const how = await runToEnd([...suite, ...arguments_], { limitMs: ONE_RUN_MS });
  const text = how.out + how.err;
  const about = (scenario) => {
    const from = text.indexOf(`=== Running scenario: ${scenario} ===`);
    if (from < 0) return "it was never begun";
    return text.slice(from, text.indexOf("\n=== ", from + 4)).slice(0, 1500);
  };
  return { how, text, about };
}
