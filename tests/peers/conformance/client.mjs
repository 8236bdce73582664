// The client leg: one process for each scenario, which has to do its work and end by itself.
//
// The scenarios of a run go one by one, not all at once as the suite would have it: some have
// windows of real time, and a warning or a failed client makes the suite itself fail only this way.
import fs from "node:fs";
import path from "node:path";
import { LEFT_OUT } from "./exceptions.mjs";
import { readResults, Suite } from "./suite.mjs";

const RUNS = [
  {
    name: "2025-11-25",
    revision: "2025-11-25",
    scenarios: 25,
    run: 5,
    select: ["--requirements", "2025-11-25"],
  },
  {
    name: "2026-07-28",
    revision: "2026-07-28",
    scenarios: 39,
    run: 8,
    select: ["--requirements", "2026-07-28"],
  },
  {
    name: "all 2025-06-18",
    revision: "2025-06-18",
    scenarios: 5,
    run: 2,
    select: ["--suite", "all", "--spec-version", "2025-06-18"],
  },
  {
    name: "all 2025-03-26",
    revision: "2025-03-26",
    scenarios: 2,
    run: 0,
    select: ["--suite", "all", "--spec-version", "2025-03-26"],
  },
];
/** How long a client may take; it does its work in a fraction of a second. */
const ONE_CLIENT_MS = 15_000;
const ONE_SCENARIO_MS = ONE_CLIENT_MS + 15_000;
export const CLIENT_LEG_MS = RUNS.reduce((sum, { run }) => sum + run, 0) * ONE_SCENARIO_MS;

const here = path.dirname(new URL(import.meta.url).pathname);

/** Against the client that `command` starts, with the URL as its last argument. */
export async function clientLeg({ checks, verdicts, peers, home, command }) {
  const suite = new Suite(peers, "client");
  const totals = [];
  for (const { name, revision, scenarios, run: count, select } of RUNS) {
    const run = `client ${name}`;
    const listed = suite.listed(select);
    const tally = verdicts.begin(run, scenarios, listed);
    const reason = (scenario) => LEFT_OUT.find(({ prefix }) => scenario.startsWith(prefix))?.reason;
    const expected = listed.filter((scenario) => !reason(scenario));
    if (expected.length !== count)
      checks.fail(`${run}: the suite`, `${expected.length} scenarios to run, not ${count}`);
    for (const scenario of expected) {
      const out = path.join(home, run.replaceAll(" ", "-"), scenario);
      await oneScenario({ suite, verdicts, tally, scenario, revision, out, command });
    }
    const left = LEFT_OUT.map(({ reason: why }) => {
      const these = listed.filter((scenario) => reason(scenario) === why);
      return `${these.length} left out: ${why}`;
    });
    totals.push(verdicts.total(tally, left));
  }
  verdicts.close("client");
  return totals;
}

async function oneScenario({ suite, verdicts, tally, scenario, revision, out, command }) {
  fs.mkdirSync(out, { recursive: true });
  const status = path.join(out, "status");
  const recorded = ["exec", path.join(here, "record"), status, ...command];
  const { how, text } = await suite.run(
    [
      ...["--command", recorded.map(quoted).join(" ")],
      ...["--scenario", scenario, "--spec-version", revision],
      ...["--timeout", `${ONE_CLIENT_MS}`, "-o", out],
    ],
    ONE_SCENARIO_MS,
  );
  const ended = fs.existsSync(status) ? fs.readFileSync(status, "utf8").trim() : undefined;
  const shortfalls = [];
  const short = (kind, what) => shortfalls.push({ kind, text: what });
  if (ended === undefined) short("ended", "the client did not end by itself");
  else if (ended !== "0") short("ended", `the client ended with ${ended}`);
  // By its own strict rule for a single scenario; whatever that sees and we do not.
  if (how.code !== 0) short("ended", `the suite ended with ${how.code ?? how.signal}`);
  const found = readResults(out).get(scenario);
  const said = found ? lastWords(out) : text.slice(-1500);
  verdicts.give(tally, scenario, found, { shortfalls, said });
}

/** What the client wrote to stderr, by the copy the suite keeps. */
function lastWords(out) {
  const files = fs.readdirSync(out, { recursive: true });
  const kept = files.find((file) => path.basename(file) === "stderr.txt");
  const text = kept && fs.readFileSync(path.join(out, kept), "utf8").trim();
  return text ? `the client said last:\n${text.slice(-1500)}` : "";
}

/** A word of a shell command. */
const quoted = (word) =>
  /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
