// Stands between an instance and the Gateway and can keep answers of the Gateway back, so that calls
// are done whose answers nobody has.
import net from "node:net";

export class Relay {
  #lost = () => false;
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
    const pieces = new Pieces();
    far.on("data", (data) => {
      for (const piece of pieces.feed(data)) if (!this.#lost(piece)) near.write(piece);
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

  /** From now on answers that hold `text` get lost; everything else passes. */
  lose(text) {
    this.#lost = (piece) => piece.includes('"type":"res"') && piece.includes(text);
  }

  /** From now on everything passes again. */
  loseNothing() {
    this.#lost = () => false;
  }

  stop() {
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** Splits what a server sends: the head of its handshake, then frames, which are plain text. */
class Pieces {
  #buffer = Buffer.alloc(0);
  #headSeen = false;

  *feed(data) {
    this.#buffer = Buffer.concat([this.#buffer, data]);
    for (let length; (length = this.#next()) !== undefined;) {
      yield this.#buffer.subarray(0, length);
      this.#buffer = this.#buffer.subarray(length);
      this.#headSeen = true;
    }
  }

  /** Bytes of the next piece; undefined while it is incomplete. */
  #next() {
    const length = this.#headSeen ? this.#frameLength() : this.#headLength();
    return length <= this.#buffer.length ? length : undefined;
  }

  #headLength() {
    const end = this.#buffer.indexOf("\r\n\r\n");
    return end < 0 ? Infinity : end + 4;
  }

  /** RFC 6455 §5.2, without a mask. */
  #frameLength() {
    const { length } = this.#buffer;
    if (length < 2) return Infinity;
    const short = this.#buffer[1] & 0x7f;
    if (short < 126) return 2 + short;
    if (short === 126) return length < 4 ? Infinity : 4 + this.#buffer.readUInt16BE(2);
    return length < 10 ? Infinity : 10 + Number(this.#buffer.readBigUInt64BE(2));
  }
}
