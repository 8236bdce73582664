// A real OpenClaw Gateway on a seeded HOME of its own.
//
// Three sessions: one over telegram (with an image), one threaded over slack, one without any
// route. The telegram channel and the model talk to stand-ins on loopback (stand-ins.mjs), so
// nothing leaves the machine, messages are really delivered and agent turns really end. Two
// Gateways seeded with the same `base` differ in nothing but paths, ports, random ids and the
// clock.
import { createHash, generateKeyPairSync } from "node:crypto";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";
import { sleep, start, stop } from "./processes.mjs";

const PIXEL =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const text = (value) => [{ type: "text", text: value }];

export const MAIN = "agent:main:main";
export const SLACK = "agent:main:slack:channel:c0seed";
export const UNROUTED = "agent:main:webchat-only";

const SESSIONS = [
  {
    key: MAIN,
    sessionId: "11111111-1111-4111-8111-111111111111",
    route: { channel: "telegram", to: "100200300", accountId: "default" },
    extra: { chatType: "direct", displayName: "Ada (telegram)", label: "Ada" },
    messages: [
      ["m1a", "user", text("Hello from telegram")],
      ["m1b", "assistant", text("Hi Ada, how can I help?")],
      [
        "m1c",
        "user",
        [...text("Here is a picture"), { type: "image", mimeType: "image/png", data: PIXEL }],
      ],
    ],
  },
  {
    key: SLACK,
    sessionId: "22222222-2222-4222-8222-222222222222",
    route: {
      channel: "slack",
      to: "channel:C0SEED",
      accountId: "work",
      threadId: "1717171717.000100",
    },
    extra: { chatType: "channel", displayName: "#seed-room" },
    messages: [
      ["m2a", "user", "Plain string content in slack"],
      ["m2b", "assistant", text("Noted.")],
    ],
  },
  {
    key: UNROUTED,
    sessionId: "33333333-3333-4333-8333-333333333333",
    route: null,
    extra: { displayName: "unrouted" },
    messages: [["m3a", "user", text("nobody can reply to me")]],
  },
];

export class Gateway {
  /**
   * `base`: the time (ms) the seeded story starts at; `standIns`: URLs of the telegram and model
   * stand-ins.
   */
  constructor({ peers, home, port, base, standIns }) {
    Object.assign(this, { peers, home, port, base });
    this.token = "seed-gateway-token";
    this.url = `ws://127.0.0.1:${port}`;
    this.state = path.join(home, ".openclaw");
    this.log = path.join(home, "gateway.log");
    this.tokenFile = path.join(home, "token");
    this.child = undefined;
    this.seed(standIns);
  }

  /**
   * The environment of everything that belongs to this Gateway: our HOME, and none of the user's
   * settings.
   */
  get env() {
    const env = {
      HOME: this.home,
      PATH: `${this.peers}/bin:${process.env.PATH}`,
      LANG: "C.UTF-8",
      TZ: "UTC",
    };
    if (process.env.TMPDIR) env.TMPDIR = process.env.TMPDIR;
    return env;
  }

  seed(standIns) {
    const workspace = path.join(this.home, "workspace");
    const sessions = path.join(this.state, "agents", "main", "sessions");
    fs.mkdirSync(sessions, { recursive: true, mode: 0o700 });
    fs.mkdirSync(workspace, { recursive: true });
    writeJson(path.join(this.state, "openclaw.json"), this.config(workspace, standIns));
    writeJson(path.join(this.state, "identity", "device.json"), newIdentity());
    fs.writeFileSync(this.tokenFile, `${this.token}\n`, { mode: 0o600 });
    const store = {};
    SESSIONS.forEach((session, index) => {
      const file = path.join(sessions, `${session.sessionId}.jsonl`);
      const begin = this.base + index * 60_000;
      fs.writeFileSync(file, transcript(session, begin, workspace), { mode: 0o600 });
      store[session.key] = storeEntry(session, begin, file);
    });
    writeJson(path.join(sessions, "sessions.json"), store);
  }

  config(workspace, { telegram, model }) {
    const seedModel = {
      id: "seed-model",
      name: "Seed model",
      reasoning: false,
      input: ["text"],
      cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 },
      contextWindow: 128_000,
      maxTokens: 4096,
    };
    return {
      // Without mode "local" this version refuses to start.
      gateway: {
        mode: "local",
        bind: "loopback",
        port: this.port,
        auth: { mode: "token", token: this.token },
      },
      logging: { file: path.join(this.home, "openclaw.log") },
      update: { checkOnStart: false },
      agents: {
        defaults: {
          workspace,
          skipBootstrap: true,
          // A heartbeat is a turn nobody asked for, at a time of its own choosing.
          heartbeat: { every: "0m" },
          model: { primary: "seed/seed-model" },
        },
      },
      models: {
        mode: "merge",
        providers: {
          seed: {
            baseUrl: model,
            apiKey: "seed-key",
            api: "openai-completions",
            models: [seedModel],
          },
        },
      },
      channels: {
        telegram: {
          enabled: true,
          botToken: "999:seed-bot-token",
          apiRoot: telegram,
          dmPolicy: "open",
          allowFrom: ["*"],
          network: { dangerouslyAllowPrivateNetwork: true },
        },
      },
    };
  }

  /** Starts the program; `ready` tells when it serves. */
  start() {
    const out = fs.openSync(this.log, "a");
    this.child = start(
      [
        "openclaw",
        "gateway",
        "run",
        "--port",
        `${this.port}`,
        "--bind",
        "loopback",
        "--auth",
        "token",
      ],
      {
        env: this.env,
        cwd: path.join(this.home, "workspace"),
        stdio: ["ignore", out, out],
      },
    );
    fs.closeSync(out);
    this.child.ended.then((how) => (this.ended = how));
    this.ended = undefined;
  }

  async ready(limitMs = 120_000) {
    const deadline = Date.now() + limitMs;
    while (Date.now() < deadline) {
      if (this.ended)
        throw new Error(
          `the Gateway ended before it was ready: ${JSON.stringify(this.ended)}\n${this.logTail()}`,
        );
      const up = await fetch(`http://127.0.0.1:${this.port}/readyz`, {
        signal: AbortSignal.timeout(2000),
      }).then(
        (answer) => answer.status === 200,
        () => false,
      );
      if (up) return;
      await sleep(100);
    }
    throw new Error(`the Gateway was not ready after ${limitMs} ms\n${this.logTail()}`);
  }

  logTail() {
    return fs.existsSync(this.log) ? fs.readFileSync(this.log, "utf8").slice(-2000) : "";
  }

  stop() {
    return this.child ? stop(this.child) : undefined;
  }
}

/** A loopback port that was free a moment ago. */
export async function freePort() {
  const server = net.createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

function writeJson(file, value) {
  fs.mkdirSync(path.dirname(file), { recursive: true, mode: 0o700 });
  fs.writeFileSync(file, JSON.stringify(value, null, 2) + "\n", { mode: 0o600 });
}

function newIdentity() {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = publicKey.export({ type: "spki", format: "der" }).subarray(-32);
  return {
    version: 1,
    deviceId: createHash("sha256").update(raw).digest("hex"),
    publicKeyPem: publicKey.export({ type: "spki", format: "pem" }),
    privateKeyPem: privateKey.export({ type: "pkcs8", format: "pem" }),
    createdAtMs: Date.now(),
  };
}

/** JSON lines: a header, then entries chained by parentId, one second apart. */
function transcript(session, begin, cwd) {
  const iso = (ms) => new Date(ms).toISOString();
  const lines = [
    { type: "session", version: 3, id: session.sessionId, timestamp: iso(begin), cwd },
  ];
  let parentId = null;
  session.messages.forEach(([id, role, content], index) => {
    const timestamp = begin + (index + 1) * 1000;
    const message = { role, content, timestamp };
    if (role === "assistant")
      Object.assign(message, {
        api: "seed",
        provider: "seed",
        model: "seed",
        stopReason: "stop",
        usage: usage(),
      });
    lines.push({ type: "message", id, parentId, timestamp: iso(timestamp), message });
    parentId = id;
  });
  return lines.map((line) => JSON.stringify(line) + "\n").join("");
}

function usage() {
  const none = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
  return { ...none, input: 1, output: 1, totalTokens: 2, cost: { ...none, total: 0 } };
}

function storeEntry({ sessionId, route, extra, messages }, begin, sessionFile) {
  const last = begin + messages.length * 1000;
  const entry = {
    sessionId,
    sessionFile,
    sessionStartedAt: begin,
    lastInteractionAt: last,
    updatedAt: last,
    ...extra,
  };
  if (!route) return entry;
  const { channel, to, accountId, threadId } = route;
  Object.assign(entry, {
    deliveryContext: route,
    lastChannel: channel,
    lastTo: to,
    lastAccountId: accountId,
  });
  if (threadId) entry.lastThreadId = threadId;
  return entry;
}
