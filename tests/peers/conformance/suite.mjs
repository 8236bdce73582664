// The official suite as a program: what it lists, what it says, what it leaves behind.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { runToEnd } from "../lib/harness.mjs";

export class Suite {
  /** `leg` is `server` or `client`. */
  constructor(peers, leg) {
    this.leg = leg;
    this.program = [
      path.join(peers, "bin/node"),
      path.join(peers, "node_modules/@modelcontextprotocol/conformance/dist/index.js"),
    ];
  }

  /** The scenarios of this leg in a selection, by the suite's own list. */
  listed(select) {
    const arguments_ = select[0] === "--suite" ? [`--${this.leg}`, ...select.slice(2)] : select;
    const [node, ...program] = [...this.program, "list", ...arguments_];
    const { stdout, status, stderr } = spawnSync(node, program, {
      encoding: "utf8",
      timeout: 30_000,
    });
    if (status !== 0) throw new Error(`conformance list ended with ${status}: ${stderr}`);
    const ours = `${this.leg[0].toUpperCase()}${this.leg.slice(1)} scenarios`;
    const names = [];
    let heading = "";
    for (const line of stdout.split("\n")) {
      const [, name, mark] = /^ +- (\S+)(?: \[(.*)\])?$/.exec(line) ?? [];
      if (/^\S/.test(line)) heading = line;
      else if (name && (heading.startsWith(ours) || mark === this.leg)) names.push(name);
    }
    return names;
  }

  /** Runs the leg to its end: `{ how, text }`, the text being all it said. */
  async run(arguments_, limitMs) {
    const how = await runToEnd([...this.program, this.leg, ...arguments_], { limitMs });
    return { how, text: how.out + how.err };
  }
}

/** What the suite left in `directory`: a map of scenario to its checks. */
export function readResults(directory, prefix = "") {
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
