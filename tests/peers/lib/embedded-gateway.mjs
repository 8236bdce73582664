// The Gateway inside drawspan, on its own, with a few conversations.
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { Server } from "./harness.mjs";

/**
 * Starts it in `home` with one message in each of the conversations `sessions`.
 *
 * Resolves to `{url, port, token, post}`: `token` is the file that holds it, `post(session, text)`
 * says something as the user.
 */
export async function startEmbeddedGateway(drawspan, home, sessions) {
  const token = path.join(home, "gateway-token");
  fs.writeFileSync(token, `${randomBytes(16).toString("hex")}\n`, { mode: 0o600 });
  const store = path.join(home, "gateway-store");
  const command = [drawspan, "gateway", "--listen", "ws://127.0.0.1:{port}", "--store", store];
  const { port } = await new Server([...command, "--token-file", token]).start();
  const url = `ws://127.0.0.1:${port}`;
  const post = (session, text) => {
    const to = ["--url", url, "--token-file", token, "--session", session];
    const given = ["gateway", "post", ...to, text];
    const { status, stderr } = spawnSync(drawspan, given, { encoding: "utf8", timeout: 10_000 });
    if (status !== 0) throw new Error(`drawspan gateway post: ${status} ${stderr}`);
  };
  for (const session of sessions) post(session, "seed");
  return { url, port, token, post };
}
