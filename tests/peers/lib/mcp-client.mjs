// An MCP client that hides nothing: one child process, one JSON document per line, every message
// kept.
import { residentKib, start, within } from "./processes.mjs";

const ANSWER_MS = 60_000;

export class McpClient {
  /** Everything received, in order: responses, notifications, requests. */
  received = [];
  /** Lines on stdout that are no JSON-RPC message; must stay empty. */
  impure = [];
  stderr = "";
  #child;
  #nextId = 1;
  #rest = "";
  #watchers = new Set();

  constructor(command, { env, cwd }) {
    this.startedAt = performance.now();
    this.#child = start(command, { env, cwd });
    this.ended = this.#child.ended.then((how) => {
      this.#wake();
      return how;
    });
    this.#child.stdin.on("error", () => {});
    this.#child.stdout.setEncoding("utf8").on("data", (data) => this.#read(data));
    this.#child.stderr.setEncoding("utf8").on("data", (data) => (this.stderr += data));
  }

  get residentKib() {
    return residentKib(this.#child.pid);
  }

  /** Writes one line as it is. */
  line(raw) {
    this.#child.stdin.write(`${raw}\n`);
  }

  notify(method, params) {
    this.line(JSON.stringify({ jsonrpc: "2.0", method, ...(params ? { params } : {}) }));
  }

  /** Sends a request and returns its id; `answer` waits for what comes back. */
  post(method, params) {
    const id = this.#nextId++;
    this.line(
      JSON.stringify({ jsonrpc: "2.0", id, method, ...(params === undefined ? {} : { params }) }),
    );
    return id;
  }

  /** The answer to request `id` without its frame: `{result}` or `{error}`. */
  async answer(id, limitMs = ANSWER_MS) {
    const message = await this.message(
      `answer to request ${id}`,
      (m) => m.id === id && !m.method,
      limitMs,
    );
    const { jsonrpc, id: _, ...body } = message;
    if (jsonrpc !== "2.0")
      throw new Error(`answer without "jsonrpc":"2.0": ${JSON.stringify(message)}`);
    return body;
  }

  request(method, params, limitMs) {
    return this.answer(this.post(method, params), limitMs);
  }

  async initialize(protocolVersion = "2025-11-25") {
    const clientInfo = { name: "peers", version: "1.0.0" };
    const answer = await this.request("initialize", {
      protocolVersion,
      capabilities: {},
      clientInfo,
    });
    this.notify("notifications/initialized");
    return answer;
  }

  /** Calls a tool and returns its result, or the JSON-RPC error as `{error}`. */
  async tool(name, args = {}, meta) {
    return unwrap(await this.answer(this.postTool(name, args, meta)));
  }

  postTool(name, args = {}, meta) {
    return this.post("tools/call", { name, arguments: args, ...(meta ? { _meta: meta } : {}) });
  }

  /** The first message received, or still to come, for which `wanted` holds. */
  message(what, wanted, limitMs = ANSWER_MS) {
    const found = new Promise((resolve, reject) => {
      const look = (ended) => {
        const message = this.received.find(wanted);
        if (message) resolve(message);
        else if (ended)
          reject(new Error(`${what}: the process ended; stderr: ${this.stderr.slice(-400)}`));
        return message || ended;
      };
      if (look(false)) return;
      const watcher = () => look(false) && this.#watchers.delete(watcher);
      this.#watchers.add(watcher);
      this.ended.then(() => look(true));
    });
    return within(limitMs, what, found);
  }

  notification(method, limitMs) {
    return this.message(method, (m) => m.method === method && !m.seen && (m.seen = true), limitMs);
  }

  /** Closes stdin; says how the process ended and how long it took. */
  async end(limitMs = 20_000) {
    const begin = performance.now();
    this.#child.stdin.end();
    const { code, signal } = await within(limitMs, "exit after end of input", this.ended);
    return { code, signal, ms: Math.round(performance.now() - begin) };
  }

  signal(name) {
    this.#child.kill(name);
  }

  #read(data) {
    const lines = (this.#rest + data).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) {
      try {
        const message = JSON.parse(line);
        if (message.jsonrpc !== "2.0") throw new Error("no JSON-RPC message");
        this.received.push(message);
      } catch {
        this.impure.push(line);
      }
    }
    this.#wake();
  }

  #wake() {
    for (const watcher of [...this.#watchers]) watcher();
  }
}

export function unwrap(answer) {
  return answer.result === undefined ? answer : answer.result;
}
