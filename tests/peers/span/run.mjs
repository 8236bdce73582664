// Real clients against real servers, through drawspan.
//
//   run.mjs PEERS [NAME…]      only the upstream servers with these names
//
// Started by ./run.
import fs from "node:fs";
import path from "node:path";
import { harness, runToEnd, Server } from "../lib/harness.mjs";
import { subjects } from "../servers/subjects.mjs";
import { conversation } from "./conversation.mjs";

const WHOLE_RUN_MS = 600_000;
const CLIENTS_MS = 240_000;
const here = path.dirname(new URL(import.meta.url).pathname);
const drawspan = path.resolve(
  process.env.DRAWSPAN ?? path.join(here, "../../../target/release/drawspan"),
);
const [peers, ...names] = process.argv.slice(2);

// A call, one that fails, and what OpenClaw makes of a server with resources and prompts.
const ADDED = ["prompts_get", "prompts_list", "resources_list", "resources_read"];
const FACTS = {
  everything: {
    call: { name: "get-sum", arguments: { a: 20, b: 22 }, contains: "42" },
    failing: { name: "get-sum", arguments: { a: "twenty" } },
    // For clients that can be asked; an old server is told that a stateless one can.
    conditional: [
      "get-roots-list",
      "trigger-elicitation-request",
      "trigger-url-elicitation",
      "trigger-sampling-request",
    ],
    openclawAdds: ADDED,
  },
  python: {
    call: { name: "add", arguments: { a: 40, b: 2 }, contains: '"total":42' },
    failing: { name: "fail", arguments: {} },
    openclawAdds: ADDED,
  },
};

await harness("span", WHOLE_RUN_MS, async ({ checks, home }) => {
  const env = { HOME: home, PATH: process.env.PATH };
  const all = subjects(peers, home).filter(({ name }) => FACTS[name]);
  for (const subject of all.filter(({ name }) => !names.length || names.includes(name))) {
    // One server is shown as it is, with what can only be called as a task.
    const tools = [...subject.tools, ...(subject.leftOut ?? [])];
    const facts = { tools, ...FACTS[subject.name] };
    const file = path.join(home, `${subject.name}.json`);
    fs.writeFileSync(file, JSON.stringify(facts));
    const place = (kind) => subject.places.find((one) => one.name === kind);
    // The reference server is an old one; the other is asked for in the newest revision it has.
    const upstream = place(subject.name === "python" ? "streamable-http" : "stdio");
    const server =
      upstream.path && (await new Server(upstream.command, { env: { ...env } }).start());
    const target = server
      ? `http://127.0.0.1:${server.port}${upstream.path}`
      : `-- ${upstream.command.join(" ")}`;
    await checks.check(`all clients against ${subject.name} over ${upstream.name}`, async () => {
      const run = [process.execPath, path.join(here, "../clients/run.mjs"), peers];
      const stdio = `${drawspan} serve ${target}`;
      const http = `${drawspan} serve --listen http://127.0.0.1:{port} ${target}`;
      const command = [...run, "--stdio", stdio, "--http", http, "--facts", file];
      const { code, out, err } = await runToEnd(command, {
        env: { ...process.env, DRAWSPAN: drawspan },
        limitMs: CLIENTS_MS,
      });
      console.log(out.trimEnd().replace(/^/gm, "    "));
      if (code !== 0) throw new Error(`it ended with ${code}: ${err.slice(-1500)}`);
    });
    await server?.stop();
    if (subject.name === "everything")
      await conversation(checks, { peers, drawspan, home, env, upstream });
  }
});
