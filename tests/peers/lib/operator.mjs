// An operator's connection to the Gateway: the part of its WebSocket protocol the tests need to
// make things happen. It uses the device identity of the seeded HOME, as the bridges under test do,
// because an approval is visible only to the device that asked for it.
import { createHash, createPrivateKey, createPublicKey, randomUUID, sign } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { within } from "./processes.mjs";

const SCOPES = ["operator.admin", "operator.read", "operator.write", "operator.approvals"];
const CALL_MS = 30_000;

export class Operator {
  #socket;
  #pending = new Map();

  /** Connects and pairs; the first device with admin scope must be this one. */
  static async connect(gateway) {
    const operator = new Operator();
    const socket = new WebSocket(gateway.url);
    operator.#socket = socket;
    const challenge = new Promise((resolve, reject) => {
      socket.addEventListener("message", ({ data }) =>
        operator.#receive(JSON.parse(data), resolve),
      );
      socket.addEventListener("error", () => reject(new Error("operator: the WebSocket failed")));
      socket.addEventListener("close", ({ code, reason }) => {
        const error = new Error(`operator: closed ${code} ${reason}`);
        reject(error);
        operator.#failAll(error);
      });
    });
    const { nonce } = await within(CALL_MS, "operator: challenge", challenge);
    await operator.call("connect", connectParams(gateway, nonce));
    return operator;
  }

  /** One request; resolves to its payload, rejects with the Gateway's message. */
  call(method, params = {}) {
    const id = randomUUID();
    const answer = new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject }));
    this.#socket.send(JSON.stringify({ type: "req", id, method, params }));
    return within(CALL_MS, `operator: ${method}`, answer);
  }

  /** The assistant says something in a session. */
  says(sessionKey, message, label) {
    return this.call("chat.inject", { sessionKey, message, ...(label ? { label } : {}) });
  }

  /**
   * The user says something in a session. Resolves when the turn is over, to the number of messages
   * it added: the user's and the model's echo. This Gateway version refuses most turns of a seeded
   * session after the first ("reply session initialization conflicted"); then it is the user's
   * message alone.
   */
  async hears(sessionKey, message) {
    const before = await this.#count(sessionKey);
    const { runId } = await this.call("chat.send", {
      sessionKey,
      message,
      idempotencyKey: randomUUID(),
      deliver: false,
    });
    const { status } = await this.call("agent.wait", { runId, timeoutMs: 20_000 });
    if (status === "timeout")
      throw new Error(`operator: the turn for "${message}" did not end in 20 s`);
    return (await this.#count(sessionKey)) - before;
  }

  async #count(key) {
    return (await this.call("sessions.get", { key, limit: 1000 })).messages.length;
  }

  close() {
    this.#socket.close();
  }

  #receive(frame, challenged) {
    if (frame.type === "event" && frame.event === "connect.challenge") challenged(frame.payload);
    if (frame.type !== "res") return;
    const waiting = this.#pending.get(frame.id);
    this.#pending.delete(frame.id);
    if (frame.ok) waiting?.resolve(frame.payload);
    else waiting?.reject(new Error(`operator: ${frame.error?.message}`));
  }

  #failAll(error) {
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

function connectParams(gateway, nonce) {
  const identity = JSON.parse(
    fs.readFileSync(path.join(gateway.state, "identity", "device.json"), "utf8"),
  );
  const raw = createPublicKey(identity.publicKeyPem)
    .export({ type: "spki", format: "der" })
    .subarray(-32);
  const id = createHash("sha256").update(raw).digest("hex");
  const signedAt = Date.now();
  const signed = [
    "v3",
    id,
    "cli",
    "cli",
    "operator",
    SCOPES.join(","),
    signedAt,
    gateway.token,
    nonce,
    process.platform,
    "",
  ];
  const signature = sign(
    null,
    Buffer.from(signed.join("|")),
    createPrivateKey(identity.privateKeyPem),
  );
  return {
    minProtocol: 4,
    maxProtocol: 4,
    client: {
      id: "cli",
      displayName: "Peers test",
      version: "1.0.0",
      platform: process.platform,
      mode: "cli",
    },
    caps: [],
    auth: { token: gateway.token },
    role: "operator",
    scopes: SCOPES,
    device: {
      id,
      publicKey: raw.toString("base64url"),
      signature: signature.toString("base64url"),
      signedAt,
      nonce,
    },
  };
}
