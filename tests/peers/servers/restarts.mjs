// A server that is killed and comes back while a client talks to it through `drawspan serve`.
import assert from "node:assert/strict";
import { runToEnd } from "../lib/harness.mjs";
import { McpClient } from "../lib/mcp-client.mjs";
import { leftovers } from "../lib/processes.mjs";

/**
 * Kills the server in the middle of a session: the calls after that work, at the latest the second
 * one, and whoever is told of the loss is told so in words.
 *
 * Not run, and said so, by a drawspan whose `serve` takes no TARGET.
 */
export async function restarts(checks, what, given) {
  const { drawspan, subject, place, env, home, configured, listen } = given;
  const name = `${what}: killed in mid-session`;
  if (!(await servesTargets(drawspan, env))) {
    console.log(`PENDING   ${name}: drawspan serve takes no TARGET`);
    return;
  }
  await checks.check(name, async () => {
    let server = place.path && (await listen(place, env));
    const target = configured(home, place, server?.port, "auto");
    const client = new McpClient([drawspan, "serve", "s", ...target], { env, cwd: home });
    try {
      await client.initialize();
      const { tool, words = [], args } = subject.calls[0];
      const pairs = words.map((word) => [word.split("=")[0], word.slice(word.indexOf("=") + 1)]);
      const given = args ?? Object.fromEntries(pairs);
      const first = await client.tool(tool, given);
      assert.ok(!first.error && !first.isError, JSON.stringify(first));
      for (let round = 0; round < 2; round++) {
        if (server) {
          await server.stop(0);
          server = await listen(place, env, server.port);
        } else kill(place);
        let result = await client.tool(tool, given);
        if (result.error || result.isError) {
          const text = JSON.stringify(result);
          assert.match(text, /lost|killed|exited|closed|ended|refused|safe to retry/, text);
          result = await client.tool(tool, given);
        }
        assert.deepEqual(result, first, `after restart ${round + 1}`);
      }
      assert.deepEqual(client.impure, []);
    } finally {
      const { code } = await client.end();
      await server?.stop();
      assert.equal(code, 0, client.stderr.slice(-800));
    }
  });
}

async function servesTargets(drawspan, env) {
  const help = await runToEnd([drawspan, "serve", "--help"], { env, limitMs: 10_000 });
  return /\[TARGET/.test(help.out);
}

/** Kills the server that drawspan has started as its child. */
function kill(place) {
  const found = leftovers()?.filter(({ command }) => command.startsWith(place.command[0]));
  assert.ok(found?.length, "the server runs");
  for (const { pid } of found) process.kill(pid, "SIGKILL");
}
