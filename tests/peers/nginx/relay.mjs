// Stands between an instance and the Gateway and can keep the Gateway's answers back, so that calls
// are done whose answers nobody has.
import net from "node:net";

export class Relay {
  #held = undefined;
  #sockets = new Set();

  constructor(port) {
    this.target = port;
  }

  async start() {
    this.server = net.createServer((near) => this.#join(near)).listen(0, "127.0.0.1");
    await new Promise((resolve) => this.server.once("listening", resolve));
    this.url = `ws://127.0.0.1:${this.server.address().port}`;
    return this;
  }

  #join(near) {
    const far = net.connect(this.target, "127.0.0.1");
    let holding = false;
    far.on("data", (data) => {
      // A server's frames are plain text. From the first one held on, nothing passes any more.
      holding ||= this.#held !== undefined && data.includes(this.#held);
      if (!holding) near.write(data);
    });
    near.on("data", (data) => far.write(data));
    for (const [socket, other] of [
      [near, far],
      [far, near],
    ]) {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.once("close", () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
  }

  /** From now on keeps back what holds `text`, and all after it on that connection. */
  hold(text) {
    this.#held = text;
  }

  /** New connections get everything again. */
  release() {
    this.#held = undefined;
  }

  stop() {
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}
