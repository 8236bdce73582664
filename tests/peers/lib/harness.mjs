// What every harness here needs: a time limit, a directory of its own, servers to test, and the
// proof that nothing is left behind.
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { Checks } from "./checks.mjs";
import { killAll, leftovers, sleep, start, stop, stopAll } from "./processes.mjs";

/**
 * Runs `main({ checks, home })` and ends this process: 0 when something ran and nothing failed.
 *
 * `home` is a directory that is gone afterwards. After `limitMs` everything started is killed and
 * the run has failed.
 */
export async function harness(name, limitMs, main) {
  const checks = new Checks();
  const home = fs.mkdtempSync(path.join(os.tmpdir(), `drawspan-${name}-`));
  const abort = (why, code) => {
    console.error(`${name}: ${why}`);
    process.exit(code);
  };
  process.once("SIGINT", () => abort("interrupted", 130));
  process.once("SIGTERM", () => abort("terminated", 143));
  process.on("exit", () => {
    killAll();
    fs.rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  });
  setTimeout(() => abort(`not done after ${limitMs} ms`, 1), limitMs).unref();
  try {
    await main({ checks, home });
  } catch (error) {
    checks.fail("the run itself", error.stack);
  }
  await stopAll();
  await noProcessLeft(checks);
  process.exit(checks.close() ? 0 : 1);
}

/** Counts a process that still runs a little later as a failure. */
export async function noProcessLeft(checks) {
  let left = leftovers();
  for (let tries = 0; left?.length && tries < 20; tries++) {
    await sleep(100);
    left = leftovers();
  }
  if (left === undefined) return;
  if (left.length)
    checks.fail(
      "no process is left behind",
      left.map(({ pid, command }) => `${pid} ${command}`).join("\n"),
    );
  else checks.pass("no process is left behind");
}

/**
 * Runs `command` to its end: `{code, signal, out, err}`. After `limitMs` it is killed and `code`
 * is null.
 */
export async function runToEnd(command, { env, cwd, limitMs }) {
  const child = start(command, { env, cwd, stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  let err = "";
  child.stdout?.on("data", (data) => (out += data));
  child.stderr?.on("data", (data) => (err += data));
  const closed = new Promise((resolve) => child.once("close", resolve));
  const how = (await Promise.race([child.ended, sleep(limitMs)])) ?? (await stop(child, 1_000));
  // Whoever inherited its output may keep that open.
  await Promise.race([closed, sleep(2_000)]);
  return { ...how, out, err };
}

/** A server that is started for a test and listens on a loopback port. */
export class Server {
  #tail = "";

  /** `command` is an argv; `{port}` in it becomes `port`, which defaults to a free one. */
  constructor(command, { env = process.env, cwd, port } = {}) {
    Object.assign(this, { template: command, env, cwd, port });
  }

  /** Starts it and resolves once its port accepts; rejects with what it said when it ends first. */
  async start(limitMs = 20_000) {
    this.port ??= await quietPort();
    const command = this.template.map((part) => part.replaceAll("{port}", `${this.port}`));
    const { env, cwd } = this;
    this.child = start(command, { env, cwd, stdio: ["ignore", "pipe", "pipe"] });
    for (const output of [this.child.stdout, this.child.stderr])
      output?.on("data", (data) => (this.#tail = (this.#tail + data).slice(-4000)));
    let ended;
    this.child.ended.then((how) => (ended = how));
    const deadline = Date.now() + limitMs;
    while (!(await accepts(this.port))) {
      const what = `${path.basename(command[0])} on port ${this.port}`;
      if (ended) throw new Error(`${what}: ended with ${JSON.stringify(ended)}\n${this.#tail}`);
      if (Date.now() > deadline)
        throw new Error(`${what}: nothing listens after ${limitMs} ms\n${this.#tail}`);
      await sleep(20);
    }
    return this;
  }

  /** The last it said on stdout and stderr. */
  get tail() {
    return this.#tail;
  }

  /** Asks it to end, as a service manager does; resolves to `{code, signal}`. */
  stop(graceMs) {
    return this.child ? stop(this.child, graceMs) : undefined;
  }
}

async function accepts(port) {
  const socket = net.connect(port, "127.0.0.1");
  const up = await new Promise((resolve) => {
    socket.once("connect", () => resolve(true));
    socket.once("error", () => resolve(false));
  });
  socket.destroy();
  return up;
}

/**
 * A free loopback port below the range the system takes the ports of outgoing connections from, so
 * that a server which is restarted finds its port free however busy the clients are.
 */
export async function quietPort() {
  for (let tries = 0; tries < 200; tries++) {
    const port = 20_000 + Math.floor(Math.random() * 12_000);
    const server = net.createServer();
    const free = await new Promise((resolve) => {
      server.once("error", () => resolve(false));
      server.listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!free) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
  throw new Error("no free port between 20000 and 32000");
}

/** Splits `argv` at its first `--`: `{ options, command }`, `command` undefined without one. */
export function splitCommand(argv) {
  const at = argv.indexOf("--");
  return at < 0
    ? { options: argv, command: undefined }
    : { options: argv.slice(0, at), command: argv.slice(at + 1) };
}
