// One nginx in front of three ports, and which of them each request went to.
import fs from "node:fs";
import path from "node:path";
import { quietPort, Server } from "../lib/harness.mjs";
import { sleep } from "../lib/processes.mjs";

// The port that the template listens on and those of its instances a, b and c.
const TEMPLATE_PORTS = [8080, 8101, 8102, 8103];
const here = path.dirname(new URL(import.meta.url).pathname);

export class Proxy {
  /** `ports` are those of the instances a, b and c. */
  constructor({ nginx, directory, ports }) {
    Object.assign(this, { nginx, directory, ports });
    this.log = path.join(directory, "access.log");
  }

  async start() {
    const { nginx, directory } = this;
    this.port = await quietPort();
    this.origin = `http://127.0.0.1:${this.port}`;
    fs.mkdirSync(directory, { recursive: true });
    // Started by root, its workers belong to another user who has to reach the directory.
    fs.chmodSync(directory, 0o711);
    const ports = new Map(TEMPLATE_PORTS.map((from, n) => [from, [this.port, ...this.ports][n]]));
    const template = fs.readFileSync(path.join(here, "nginx.conf.template"), "utf8");
    const drawspan = template.replace(
      /127\.0\.0\.1:(\d+)/g,
      (_, from) => `127.0.0.1:${ports.get(Number(from))}`,
    );
    fs.writeFileSync(path.join(directory, "drawspan.conf"), drawspan);
    fs.writeFileSync(path.join(directory, "nginx.conf"), surroundings(directory, this.log));
    const command = [nginx, "-p", directory, "-c", `${directory}/nginx.conf`, "-e", "stderr"];
    this.server = await new Server([...command, "-g", "daemon off;"], { port: this.port }).start();
    return this;
  }

  /** Indexes (0 = a) of the instances a request was given to, in turn; undefined without a log. */
  async instancesOf(tag) {
    const line = (await this.#lines([tag])).get(tag);
    return (
      line && line.upstreams.map((address) => this.ports.indexOf(Number(address.split(":")[1])))
    );
  }

  /** The index of the one instance that served it; throws when there was none or more than one. */
  async instanceOf(tag) {
    const instances = await this.instancesOf(tag);
    if (instances?.length !== 1) throw new Error(`${tag} went to instances ${instances}`);
    return instances[0];
  }

  /** nginx writes a line when a request is over, a moment after the client has the answer. */
  async #lines(tags) {
    for (let tries = 0; ; tries++) {
      const found = new Map();
      for (const text of fs.readFileSync(this.log, "utf8").split("\n")) {
        const [tag, status, upstreams, statuses] = text.split("\t");
        if (!statuses) continue;
        const addresses = upstreams.split(/, | : /).filter((address) => address !== "-");
        found.set(tag, { status, upstreams: addresses, statuses });
      }
      if (tries === 100 || tags.every((tag) => found.has(tag))) return found;
      await sleep(20);
    }
  }

  /** Like `instancesOf` for many requests. */
  async instances(tags) {
    const lines = await this.#lines(tags);
    const index = (address) => this.ports.indexOf(Number(address.split(":")[1]));
    return new Map(tags.map((tag) => [tag, lines.get(tag)?.upstreams.map(index)]));
  }

  stop() {
    return this.server.stop();
  }
}

/** What a system's own nginx.conf is around drawspan.conf, for a user without rights. */
function surroundings(directory, log) {
  const unused = ["fastcgi", "uwsgi", "scgi"].map(
    (name) => `${name}_temp_path ${directory}/unused;`,
  );
  return `
worker_processes 1;
pid ${directory}/nginx.pid;
error_log stderr warn;
events { worker_connections 1024; }
http {
  client_body_temp_path ${directory}/body;
  proxy_temp_path ${directory}/proxy;
  ${unused.join(" ")}
  log_format probe '$http_user_agent\\t$status\\t$upstream_addr\\t$upstream_status';
  access_log ${log} probe;
  include ${directory}/drawspan.conf;
}
`;
}
