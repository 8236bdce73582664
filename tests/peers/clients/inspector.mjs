// The command line of the MCP Inspector on every transport, one process per request.
import assert from "node:assert/strict";
import path from "node:path";
import { runToEnd } from "../lib/harness.mjs";
import { expectCalled, expectTools } from "./facts.mjs";

const LIMIT_MS = 30_000;

export async function inspector(checks, { peers, facts, places, home }) {
  const launcher = "@modelcontextprotocol/inspector/clients/launcher/build/index.js";
  const program = [path.join(peers, "bin/node"), path.join(peers, "node_modules", launcher)];
  const env = { ...process.env, HOME: home };
  const { name, arguments: given } = facts.call;
  const called = ["--method", "tools/call", "--tool-name", name];
  for (const place of places)
    for (const era of place.modern ? ["legacy", "auto", "modern"] : ["legacy"]) {
      const ask = async (...method) => {
        const options = ["--format", "json", "--protocol-era", era, ...method];
        const target = place.command
          ? ["--", ...place.command]
          : ["--transport", place.name, "--server-url", place.url];
        const command = [...program, "--cli", ...options, ...target];
        return runToEnd(command, { env, cwd: home, limitMs: LIMIT_MS });
      };
      await checks.check(`Inspector over ${place.name}, ${era}`, async () => {
        const [list, call, failed] = await Promise.all([
          ask("--method", "tools/list"),
          ask(...called, "--tool-args-json", JSON.stringify(given)),
          facts.failing && ask(...failing(facts.failing)),
        ]);
        const names = resultIn(list).tools.map((tool) => tool.name);
        expectTools(facts, names);
        expectCalled(facts, resultIn(call));
        // 5: the tool said isError.
        if (failed) assert.equal(failed.code, 5, `a failing call: ${said(failed)}`);
      });
    }
}

function failing({ name, arguments: given }) {
  return ["--method", "tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(given)];
}

function resultIn(ended) {
  assert.equal(ended.code, 0, said(ended));
  return JSON.parse(ended.out).result;
}

const said = ({ code, signal, out, err }) =>
  `it ended with ${code ?? signal}\n${out.slice(0, 500)}\n${err.slice(-1500)}`;
