// MCP over HTTP by hand: exactly what is sent, and exactly what came back.
import http from "node:http";
import { within } from "./processes.mjs";

export const MODERN = "2026-07-28";
const META = "io.modelcontextprotocol/";
const CLIENT = { name: "peers", version: "1.0.0" };
let tags = 0;

/**
 * One HTTP exchange. Never rejects: resolves to `{status, headers, text, messages, broken, ms}`,
 * where `messages` are the JSON-RPC messages of a JSON body or an event stream and `broken` is what
 * went wrong below HTTP, a body that broke off included.
 *
 * `onMessage` sees each message of a stream as it comes; `signal` ends the exchange from our side.
 */
export function exchange(
  url,
  { agent, method = "POST", headers = {}, body, limitMs, signal, onMessage },
) {
  const began = performance.now();
  const answer = { status: 0, headers: {}, text: "", messages: [] };
  return new Promise((resolve) => {
    const done = (broken) => {
      if (broken) answer.broken ??= broken;
      answer.ms = performance.now() - began;
      resolve(answer);
    };
    const limit = limitMs === undefined ? [] : [AbortSignal.timeout(limitMs)];
    const ends = AbortSignal.any([...limit, ...(signal ? [signal] : [])]);
    const given = Object.entries(headers).filter(([, value]) => value !== undefined);
    const request = http.request(url, {
      agent,
      method,
      headers: Object.fromEntries(given),
      signal: ends,
    });
    request.once("error", (error) => done(error.message));
    request.once("response", (response) => {
      answer.status = response.statusCode;
      answer.headers = response.headers;
      const events = new EventReader((message) => {
        answer.messages.push(message);
        onMessage?.(message);
      });
      const streaming = response.headers["content-type"]?.startsWith("text/event-stream");
      response.setEncoding("utf8");
      response.on("data", (piece) => {
        answer.text += piece;
        if (streaming) events.feed(piece);
      });
      response.once("error", (error) => done(error.message));
      response.once("close", () => {
        if (!streaming) answer.messages.push(...parsed(answer.text));
        done(response.complete ? undefined : "the body broke off");
      });
    });
    request.end(body);
  });
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return Array.isArray(value) ? value : [value];
  } catch {
    return [];
  }
}

/** Splits an event stream: JSON data goes to `take`, the event `endpoint` as `{endpoint}`. */
class EventReader {
  #buffer = "";

  constructor(take) {
    this.take = take;
  }

  feed(piece) {
    this.#buffer += piece.replaceAll("\r\n", "\n");
    for (let end; (end = this.#buffer.indexOf("\n\n")) >= 0;) {
      this.#event(this.#buffer.slice(0, end).split("\n"));
      this.#buffer = this.#buffer.slice(end + 2);
    }
  }

  #event(lines) {
    const field = (name) =>
      lines
        .filter((line) => line.startsWith(`${name}:`))
        .map((line) => line.slice(name.length + 1).replace(/^ /, ""))
        .join("\n");
    const data = field("data");
    if (field("event") === "endpoint") this.take({ endpoint: data });
    else if (data) parsed(data).forEach((message) => this.take(message));
  }
}

/** What an exchange meant for request `id`: kind `result`, `error` (said clearly) or `unclear`. */
export function outcome(answer, id) {
  const { status, messages, broken } = answer;
  const unclear = (why) => ({ kind: "unclear", why: `${why} (status ${status})` });
  if (broken) return unclear(broken);
  if (status === 200) {
    const mine = messages.filter((message) => message.id === id && message.method === undefined);
    if (mine.length !== 1) return unclear(`${mine.length} answers: ${answer.text.slice(0, 300)}`);
    const [{ result, error }] = mine;
    if (error) return said(error.message) ?? unclear("an error without a message");
    if (result?.isError)
      return said(result.content?.[0]?.text) ?? unclear("an error without a text");
    return result ? { kind: "result", result } : unclear("neither result nor error");
  }
  const message = messages[0]?.error?.message;
  if (status >= 400 && messages.length === 1 && (messages[0].id ?? id) === id && said(message))
    return said(message);
  return unclear(answer.text.slice(0, 300));
}

const said = (text) =>
  typeof text === "string" && text ? { kind: "error", why: text } : undefined;

/** A result, or an Error that says what came instead. */
export function resultOf({ answer, id }) {
  const { kind, result, why } = outcome(answer, id);
  if (kind !== "result") throw new Error(`${kind}: ${why}`);
  return result;
}

/** What a request of any client here resolves to: `{answer, id, tag}`; `tag` was its User-Agent. */
class Client {
  #ids = 0;

  constructor(origin, { agent } = {}) {
    this.origin = origin;
    this.agent = agent ?? new http.Agent({ keepAlive: true, maxSockets: 64 });
  }

  async send(path, message, headers, { limitMs = 15_000, ...more } = {}) {
    const tag = `probe-${++tags}`;
    const all = {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "user-agent": tag,
      ...headers,
    };
    const body = JSON.stringify(message);
    const given = { agent: this.agent, headers: all, body, limitMs, ...more };
    return { answer: await exchange(`${this.origin}${path}`, given), id: message.id, tag };
  }

  next() {
    return ++this.#ids;
  }

  call(name, arguments_ = {}, more) {
    return this.request("tools/call", { name, arguments: arguments_ }, more);
  }
}

/** 2026-07-28: every request stands alone. */
export class Modern extends Client {
  request(method, params = {}, { headers, capabilities = {}, ...more } = {}) {
    const _meta = {
      [`${META}protocolVersion`]: MODERN,
      [`${META}clientCapabilities`]: capabilities,
      [`${META}clientInfo`]: CLIENT,
    };
    const message = { jsonrpc: "2.0", id: this.next(), method, params: { ...params, _meta } };
    const standard = {
      "mcp-protocol-version": MODERN,
      "mcp-method": method,
      "mcp-name": params.name ?? params.uri,
    };
    return this.send("/mcp", message, { ...standard, ...headers }, more);
  }
}

/** 2025-03-26 to 2025-11-25: a session. */
export class Session extends Client {
  /** Resolves to itself; rejects when no session came of it. */
  async open(version = "2025-11-25") {
    this.version = version;
    this.id = undefined;
    const params = { protocolVersion: version, capabilities: {}, clientInfo: CLIENT };
    const opened = await this.request("initialize", params);
    const { protocolVersion } = resultOf(opened);
    if (protocolVersion !== version) throw new Error(`${version} asked, ${protocolVersion} given`);
    this.id = opened.answer.headers["mcp-session-id"];
    if (!this.id) throw new Error("initialize gave no session id");
    const { answer } = await this.notify("notifications/initialized");
    if (answer.status !== 202) throw new Error(`notifications/initialized: ${answer.status}`);
    return this;
  }

  get headers() {
    const named = this.id !== undefined && this.version >= "2025-06-18";
    return { "mcp-session-id": this.id, "mcp-protocol-version": named ? this.version : undefined };
  }

  request(method, params = {}, more) {
    return this.send(
      "/mcp",
      { jsonrpc: "2.0", id: this.next(), method, params },
      this.headers,
      more,
    );
  }

  notify(method, params) {
    return this.send("/mcp", { jsonrpc: "2.0", method, params }, this.headers);
  }

  /** The standalone stream; ends with `signal`. */
  listen(onMessage, signal) {
    const headers = { accept: "text/event-stream", ...this.headers };
    return exchange(`${this.origin}/mcp`, { method: "GET", headers, signal, onMessage });
  }

  end() {
    const { headers } = this;
    return exchange(`${this.origin}/mcp`, { method: "DELETE", headers, limitMs: 10_000 });
  }
}

/** 2024-11-05: answers come on the stream of /sse. */
export class Pair extends Client {
  #waiting = new Map();
  #ends = new AbortController();

  async open() {
    const endpoint = new Promise((resolve) => {
      this.closed = exchange(`${this.origin}/sse`, {
        method: "GET",
        headers: { accept: "text/event-stream" },
        signal: this.#ends.signal,
        onMessage: (message) => {
          if (message.endpoint) resolve(message.endpoint);
          else this.#waiting.get(message.id)?.(message);
        },
      });
      this.closed.then(() => resolve(undefined));
    });
    this.endpoint = await within(10_000, "the event endpoint", endpoint);
    if (!this.endpoint) throw new Error(`no endpoint: ${JSON.stringify(await this.closed)}`);
    const params = { protocolVersion: "2024-11-05", capabilities: {}, clientInfo: CLIENT };
    const { result } = await this.request("initialize", params);
    if (result?.protocolVersion !== "2024-11-05") throw new Error(JSON.stringify(result));
    await this.send(this.endpoint, { jsonrpc: "2.0", method: "notifications/initialized" });
    return this;
  }

  /** Resolves to the message that answered. */
  async request(method, params = {}) {
    const id = this.next();
    const came = new Promise((resolve) => this.#waiting.set(id, resolve));
    const { answer } = await this.send(this.endpoint, { jsonrpc: "2.0", id, method, params });
    if (answer.status >= 300) throw new Error(`${method}: ${answer.status} ${answer.text}`);
    return within(10_000, `${method} on the stream`, came);
  }

  close() {
    this.#ends.abort();
  }
}
