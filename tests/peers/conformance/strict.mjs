// The strict reading of what the suite writes down.
//
// By its own rule the suite is content when no check failed: warnings, scenarios that threw and
// scenarios that checked nothing pass. Here each of these counts as a failure.
import fs from "node:fs";
import path from "node:path";

// It succeeds without any traffic, even with no server there at all, so it proves nothing alone.
const PROVES_NOTHING = new Set(["wire-schema-valid"]);
const KNOWN = new Set(["SUCCESS", "FAILURE", "WARNING", "SKIPPED", "INFO"]);

/** What the suite left in `directory`: a map of scenario to its checks. */
export function readResults(directory, prefix) {
  const results = new Map();
  if (!fs.existsSync(directory)) return results;
  for (const file of fs.readdirSync(directory, { recursive: true })) {
    const named = /^(.+)-\d{4}-\d\d-\d\dT[\d-]+Z\/checks\.json$/.exec(file.replaceAll("\\", "/"));
    if (!named?.[1].startsWith(prefix)) continue;
    const text = fs.readFileSync(path.join(directory, file), "utf8");
    results.set(named[1].slice(prefix.length), JSON.parse(text));
  }
  return results;
}

/**
 * Judges one scenario: `{ shortfalls: [{ kind, text }], note }`, no shortfalls when it passed.
 *
 * Kinds are `missing`, `failure`, `warning`, `unknown` and `vacuous`.
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
    ? `${proven} checks, skipped: ${skipped.join(", ")}`
    : `${proven} checks`;
  return { shortfalls, note };
}

function described({ status, id, name, description, errorMessage, details }) {
  const what = `${errorMessage ?? description ?? name}`.slice(0, 600);
  const more = details === undefined ? "" : `\n  ${JSON.stringify(details).slice(0, 400)}`;
  return `${status} ${id}: ${what}${more}`;
}
