// OpenClaw as a client: `openclaw mcp probe` with one configured server per transport.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { runToEnd } from "../lib/harness.mjs";

const LIMIT_MS = 60_000;
const TRANSPORTS = { sse: "sse", http: "streamable-http" };

export async function openclaw(checks, { peers, facts, places, home }) {
  const servers = Object.fromEntries(
    places.map(({ name, command, url }) => [
      name,
      command
        ? { command: command[0], args: command.slice(1) }
        : { url, transport: TRANSPORTS[name] },
    ]),
  );
  fs.mkdirSync(path.join(home, ".openclaw"), { recursive: true, mode: 0o700 });
  const config = path.join(home, ".openclaw", "openclaw.json");
  fs.writeFileSync(config, JSON.stringify({ mcp: { servers } }), { mode: 0o600 });

  let probe;
  await checks.check("OpenClaw: mcp probe", async () => {
    const command = [path.join(peers, "bin/openclaw"), "mcp", "probe", "--json"];
    const env = { HOME: home, PATH: `${peers}/bin:${process.env.PATH}`, LANG: "C.UTF-8" };
    const { code, out, err } = await runToEnd(command, { env, cwd: home, limitMs: LIMIT_MS });
    assert.equal(code, 0, err.slice(-1500));
    probe = JSON.parse(out);
    // It ends with 0 whatever happened; failures only stand here.
    assert.deepEqual(probe.diagnostics, []);
  });
  for (const { name } of places)
    await checks.check(`OpenClaw over ${name}`, () => {
      assert.ok(probe, "the probe failed");
      assert.equal(probe.servers[name]?.tools, facts.tools.length, JSON.stringify(probe.servers));
      const names = probe.tools.filter((tool) => tool.startsWith(`${name}__`)).sort();
      // Tools of OpenClaw's own, for a server that has resources or prompts.
      const expected = [...facts.tools, ...(facts.openclawAdds ?? [])];
      assert.deepEqual(names, expected.map((tool) => `${name}__${tool}`).sort());
    });
}
