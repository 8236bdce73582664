// The server leg: one server process serves all runs, one after the other.
import path from "node:path";
import { Server } from "../lib/harness.mjs";
import { readResults, Suite } from "./suite.mjs";

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
export const SERVER_LEG_MS = RUNS.length * ONE_RUN_MS;

/** Against the server at `url`, or the one that `command` starts; resolves to the totals. */
export async function serverLeg({ checks, verdicts, peers, home, url, command }) {
  const suite = new Suite(peers, "server");
  const server = url ? undefined : await new Server(command).start();
  const target = url ?? `http://127.0.0.1:${server.port}/mcp`;
  const totals = [];
  const failedBefore = checks.failed;
  for (const { name, select, scenarios } of RUNS) {
    const run = `server ${name}`;
    const expected = suite.listed(select);
    const tally = verdicts.begin(run, scenarios, expected);
    const out = path.join(home, run.replaceAll(" ", "-"));
    const { how, text } = await suite.run(["--url", target, ...select, "-o", out], ONE_RUN_MS);
    const results = readResults(out, "server-");
    for (const scenario of new Set([...expected, ...results.keys()])) {
      const said = results.has(scenario) ? "" : about(text, scenario);
      verdicts.give(tally, scenario, results.get(scenario), { said });
    }
    if (how.code === null)
      checks.fail(`${run}: the suite`, `it was cut off: ${text.slice(-500)}`);
    totals.push(verdicts.total(tally));
  }
  verdicts.close("server");
  if (checks.failed > failedBefore && server)
    console.log(`the server said last:\n${server.tail}`);
  await server?.stop();
  return totals;
}

function about(text, scenario) {
  const from = text.indexOf(`=== Running scenario: ${scenario} ===`);
  if (from < 0) return "it was never begun";
  return text.slice(from, text.indexOf("\n=== ", from + 4)).slice(0, 1500);
}
