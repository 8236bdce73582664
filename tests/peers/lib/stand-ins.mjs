// What a Gateway would otherwise reach over the network, in this process and on loopback: just
// enough of the Telegram Bot API to poll and send, and of an OpenAI-compatible model to finish a
// turn.
import http from "node:http";

const CHAT = 100200300;

/** Serves `handle(method, url, body) -> JSON value` on a free loopback port. */
async function serve(handle) {
  const server = http.createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const url = new URL(request.url, "http://127.0.0.1");
    const body = parseBody(
      Buffer.concat(chunks).toString("utf8"),
      request.headers["content-type"] ?? "",
    );
    await handle(url, { ...Object.fromEntries(url.searchParams), ...body }, response, request);
  });
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

function parseBody(raw, type) {
  try {
    if (type.includes("json")) return JSON.parse(raw || "{}");
    if (type.includes("urlencoded")) return Object.fromEntries(new URLSearchParams(raw));
  } catch {
    // A body this stand-in does not understand is of no interest to the tests.
  }
  return {};
}

function json(response, value) {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(value));
}

export class Telegram {
  updates = [];
  /** Bodies of sendMessage, oldest first. */
  sent = [];
  #waiting = new Set();
  #lastUpdate = 1000;
  #lastMessage = 500;

  static async start() {
    const telegram = new Telegram();
    const { server, url } = await serve((url, body, response) =>
      telegram.#handle(url, body, response),
    );
    return Object.assign(telegram, { server, url });
  }

  /** A person writes to the bot. */
  receive(text, from = "Ada") {
    this.updates.push({
      update_id: ++this.#lastUpdate,
      message: {
        message_id: ++this.#lastMessage,
        date: Math.floor(Date.now() / 1000),
        chat: { id: CHAT, type: "private", first_name: from, username: "ada" },
        from: { id: CHAT, is_bot: false, first_name: from, username: "ada", language_code: "en" },
        text,
      },
    });
    for (const wake of this.#waiting) wake();
  }

  async #handle(url, body, response) {
    const method = url.pathname.split("/").at(-1);
    const bot = {
      id: 999,
      is_bot: true,
      first_name: "Seed",
      username: "seed_bot",
      can_join_groups: true,
      can_read_all_group_messages: true,
      supports_inline_queries: false,
    };
    let result = true;
    if (method === "getMe") result = bot;
    else if (method === "getUpdates") result = await this.#poll(body, response);
    else if (method === "getWebhookInfo")
      result = { url: "", has_custom_certificate: false, pending_update_count: 0 };
    else if (method === "getChat") result = { id: CHAT, type: "private", first_name: "Ada" };
    else if (method === "sendMessage" || method === "editMessageText") {
      if (method === "sendMessage") this.sent.push(body);
      const chat = { id: Number(body.chat_id), type: "private" };
      result = {
        message_id: ++this.#lastMessage,
        date: Math.floor(Date.now() / 1000),
        chat,
        from: bot,
        text: `${body.text ?? ""}`,
      };
    }
    json(response, { ok: true, result });
  }

  async #poll(body, response) {
    const fresh = () => {
      while (this.updates.length && this.updates[0].update_id < Number(body.offset ?? 0))
        this.updates.shift();
      return this.updates.slice();
    };
    if (!fresh().length && Number(body.timeout ?? 0) > 0) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, Math.min(Number(body.timeout), 25) * 1000);
        const wake = () => (clearTimeout(timer), resolve());
        this.#waiting.add(wake);
        response.once("close", wake);
        response.once("finish", () => this.#waiting.delete(wake));
      });
    }
    return fresh();
  }
}

export class Model {
  static async start() {
    return serve((url, body, response, request) => {
      if (request.method === "GET")
        return json(response, { object: "list", data: [{ id: "seed-model", object: "model" }] });
      const lastUser = (body.messages ?? []).findLast((message) => message.role === "user");
      const content = `echo: ${lastLine(plainText(lastUser?.content))}`;
      const reply = {
        id: "chatcmpl-1",
        created: Math.floor(Date.now() / 1000),
        model: "seed-model",
      };
      const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
      if (!body.stream) {
        const message = { role: "assistant", content };
        return json(response, {
          ...reply,
          object: "chat.completion",
          choices: [{ index: 0, message, finish_reason: "stop" }],
          usage,
        });
      }
      response.setHeader("content-type", "text/event-stream");
      const chunk = (delta, finish_reason, more) => {
        const data = {
          ...reply,
          object: "chat.completion.chunk",
          choices: [{ index: 0, delta, finish_reason }],
          ...more,
        };
        response.write(`data: ${JSON.stringify(data)}\n\n`);
      };
      chunk({ role: "assistant", content }, null);
      chunk({}, "stop", { usage });
      return response.end("data: [DONE]\n\n");
    });
  }
}

function plainText(content) {
  return Array.isArray(content)
    ? content.map((part) => part.text ?? "").join("\n")
    : `${content ?? ""}`;
}

/** The Gateway puts time stamps in front of what a person said; the last line is free of them. */
function lastLine(value) {
  return value.trim().split("\n").at(-1);
}
