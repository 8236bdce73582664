// The strict reading of what the suite writes down.
//
// By its own rule the suite is content when no check failed: warnings, scenarios that threw and
// scenarios that checked nothing pass. Here each of these counts as a failure.
import { EXCEPTIONS } from "./exceptions.mjs";

// It succeeds without any traffic, even with no peer there at all, so it proves nothing alone.
const PROVES_NOTHING = new Set(["wire-schema-valid"]);
const KNOWN = new Set(["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"]);

/** Judges scenarios one by one, and knows which exceptions were needed. */
export class Verdicts {
  #used = new Set();

  constructor(checks) {
    this.checks = checks;
  }

  /** A run whose suite has to list `count` scenarios; verdicts are then given to it. */
  begin(run, count, listed) {
    if (listed.length !== count)
      this.checks.fail(`${run}: the suite`, `it lists ${listed.length} scenarios, not ${count}`);
    return { run, began: Date.now(), passed: 0, excused: 0, judged: 0 };
  }

  /**
   * One scenario: `found` are its checks, undefined when it left none, `shortfalls` what is wrong
   * beside them, and `said` what the suite said of it.
   */
  give(tally, scenario, found, { shortfalls: also = [], said = "" } = {}) {
    const { shortfalls, note } = judge(found);
    shortfalls.push(...also);
    tally.judged++;
    const reasons = shortfalls.map(({ kind }) => this.#excuse(scenario, kind)?.reason);
    const name = `${tally.run}: ${scenario}`;
    if (shortfalls.length === 0) {
      this.checks.pass(`${name} (${note})`);
      tally.passed++;
    } else if (reasons.every(Boolean)) {
      this.checks.pass(`${name} (${reasons.join("; ")})`, "excused");
      tally.excused++;
    } else {
      const why = new Set(shortfalls.map(({ text }) => text));
      if (said) why.add(said);
      this.checks.fail(name, [...why].join("\n"));
    }
  }

  /** One line about a run that is over. */
  total({ run, passed, excused, judged, began }, more = []) {
    const seconds = ((Date.now() - began) / 1000).toFixed(1);
    const parts = [`${run}: ${passed}/${judged}`, `in ${seconds} s`];
    if (excused) parts.splice(1, 0, `${excused} excused`);
    return [...parts, ...more].join(", ");
  }

  /** An exception that a whole leg did not need fails it. */
  close(leg) {
    for (const exception of EXCEPTIONS)
      if (exception.leg === leg && !this.#used.has(exception))
        this.checks.fail(`the exception for ${exception.scenario}`, "not needed; remove it");
  }

  #excuse(scenario, kind) {
    const found = EXCEPTIONS.find((it) => it.scenario === scenario && it.shortfall === kind);
    if (found) this.#used.add(found);
    return found;
  }
}

/**
 * Judges one scenario: `{ shortfalls: [{ kind, text }], note }`, no shortfalls when it passed.
 *
 * Kinds are `missing`, `failure`, `warning`, `unknown` and `vacuous`; a client also knows `ended`.
 */
export function judge(checks) {
  if (checks === undefined)
    return { shortfalls: [{ kind: "missing", text: "no result: it threw or was cut off" }] };
  const shortfalls = [];
  for (const check of checks) {
    if (check.status === "FAILURE") shortfalls.push({ kind: "failure", text: described(check) });
    else if (check.status === "WARNING")
      shortfalls.push({ kind: "warning", text: described(check) });
    else if (!KNOWN.has(check.status)) shortfalls.push({ kind: "unknown", text: described(check) });
  }
  const proven = checks.filter(
    ({ id, status }) => status === "SUCCESS" && !PROVES_NOTHING.has(id),
  ).length;
  if (proven === 0) shortfalls.push({ kind: "vacuous", text: "not one check succeeded" });
  const skipped = checks.filter(({ status }) => status === "SKIPPED").map(({ id }) => id);
  const note = skipped.length
    ? `${proven} checks, skipped: ${[...new Set(skipped)].join(", ")}`
    : `${proven} checks`;
  return { shortfalls, note };
}

function described({ status, id, name, description, errorMessage, details }) {
  const what = `${errorMessage ?? description ?? name}`.slice(0, 600);
  const more = details === undefined ? "" : `\n  ${JSON.stringify(details).slice(0, 400)}`;
  return `${status} ${id}: ${what}${more}`;
}
