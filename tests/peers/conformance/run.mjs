// The official conformance suite against a server and a client, read strictly.
//
//   run.mjs PEERS                           both legs, against the examples
//   run.mjs PEERS URL                       the server leg, against a server that is up already
//   run.mjs PEERS server -- COMMAND ARG…    the server leg; {port} becomes a free port
//   run.mjs PEERS client -- COMMAND ARG…    the client leg; the URL becomes the last argument
//
// Without a command a leg runs against its example. Started by ./run.
import path from "node:path";
import { harness, splitCommand } from "../lib/harness.mjs";
import { CLIENT_LEG_MS, clientLeg } from "./client.mjs";
import { SERVER_LEG_MS, serverLeg } from "./server.mjs";
import { Verdicts } from "./strict.mjs";

const [peers, ...argv] = process.argv.slice(2);
const { options, command } = splitCommand(argv);
const [what] = options;
const legs = what === undefined && !command ? ["server", "client"] : [what ?? "server"];
const url = what?.includes("://") ? what : undefined;
if (url) legs[0] = "server";
if (options.length > 1 || (url && command) || !legs.every((leg) => /^(server|client)$/.test(leg))) {
  console.error("conformance: give the URL of a server, or a leg, -- and a command");
  process.exit(2);
}

const LISTEN = "http://127.0.0.1:{port}";
const limit = SERVER_LEG_MS + CLIENT_LEG_MS + 60_000;
await harness("conformance", limit, async ({ checks, home }) => {
  const common = { checks, verdicts: new Verdicts(checks), peers, home };
  const totals = [];
  if (legs.includes("server")) {
    const started = command ?? [example("everything_server"), "--listen", LISTEN];
    totals.push(...(await serverLeg({ ...common, url, command: started })));
  }
  if (legs.includes("client")) {
    const started = command ?? [example("everything_client")];
    totals.push(...(await clientLeg({ ...common, command: started })));
  }
  console.log("\nscenarios that passed, strictly:");
  for (const total of totals) console.log(`  ${total}`);
  console.log();
});

/** An example of the tree, where it is built beside the program under test. */
function example(name) {
  const here = path.dirname(new URL(import.meta.url).pathname);
  const drawspan = process.env.DRAWSPAN ?? path.join(here, "../../../target/release/drawspan");
  return path.resolve(path.dirname(drawspan), "examples", name);
}
