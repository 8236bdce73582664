// Load on three instances while one of them is restarted, with an account of every request.
//
// Each message that is sent is unique, and the events of the pinned instance show what arrived. So
// for every request: one answer or one clear error; answered means arrived once; an error means
// arrived once or not at all; and errors come only from the instance that was restarted.
import { Modern, outcome, Session } from "../lib/http.mjs";
import { sleep } from "../lib/processes.mjs";

const WORKERS = 10;
const THINK_MS = 30;
const STEADY_MS = 1_500;
const RESTARTED = 1;

export class Load {
  #running = true;
  #records = [];
  #sent = 0;
  /** Texts seen in events, each with how often. */
  arrived = new Map();

  /** Messages go to `sessionKey`; in `quietKey` nothing happens meanwhile. */
  constructor({ proxy, sessionKey, quietKey }) {
    Object.assign(this, { proxy, sessionKey, quietKey });
    this.modern = new Modern(proxy.origin);
  }

  /** Runs the whole story; `restart` ends the instance and starts it again. */
  async run(restart) {
    await this.#openSessions();
    const cursor = await this.#cursor();
    const collecting = this.#collect(cursor);
    const workers = Array.from({ length: WORKERS }, (_, index) => this.#worker(index % 2 === 0));
    workers.push(...this.sessions.map((session) => this.#sessionWorker(session)));
    await sleep(STEADY_MS);
    const waits = this.sessions.map((session) => this.#wait(session));
    const streams = this.sessions.map((session) => this.#stream(session));
    await sleep(100);
    this.restartBegan = performance.now();
    await restart();
    this.restartEnded = performance.now();
    await sleep(STEADY_MS);
    this.#running = false;
    await Promise.all(workers);
    this.waits = await Promise.all(waits);
    streams.forEach(({ ends }) => ends.abort());
    this.streams = await Promise.all(streams.map(({ closed }) => closed));
    await collecting;
    const tags = [...this.#records, ...this.waits].map(({ tag }) => tag);
    this.instances = await this.proxy.instances(tags);
  }

  /** Two sessions on the instance that will be restarted and two elsewhere. */
  async #openSessions() {
    const on = [];
    const off = [];
    for (let tries = 0; tries < 60 && (on.length < 2 || off.length < 2); tries++) {
      const session = await new Session(this.proxy.origin).open();
      const { tag } = await session.request("ping");
      const list = (await this.proxy.instanceOf(tag)) === RESTARTED ? on : off;
      if (list.length < 2) list.push(session);
      else await session.end();
    }
    if (on.length < 2 || off.length < 2)
      throw new Error(`sessions: ${on.length} and ${off.length}`);
    on.forEach((session) => (session.restarted = true));
    this.sessions = [...on, ...off];
  }

  async #cursor() {
    const { answer, id } = await this.modern.call("events_poll", { limit: 200 });
    const { result } = outcome(answer, id);
    return result.structuredContent.next_cursor;
  }

  /** Reads all events off the pinned instance until nothing more comes after the load. */
  async #collect(cursor) {
    for (let quiet = 0; quiet < 5;) {
      const given = { after_cursor: cursor, limit: 200, session_key: this.sessionKey };
      const { answer, id } = await this.modern.call("events_poll", given);
      const { kind, result, why } = outcome(answer, id);
      if (kind !== "result") {
        this.collectFailed = why;
        return;
      }
      const { events, next_cursor, dropped = 0 } = result.structuredContent;
      if (dropped) this.collectFailed = `${dropped} events were dropped: poll more often`;
      for (const { text } of events) this.arrived.set(text, (this.arrived.get(text) ?? 0) + 1);
      cursor = next_cursor;
      quiet = this.#running || events.length ? 0 : quiet + 1;
      await sleep(50);
    }
  }

  async #worker(sends) {
    while (this.#running) {
      await (sends
        ? this.#send(this.modern)
        : this.#record(this.modern.call("conversation_get", { session_key: this.sessionKey })));
      await sleep(THINK_MS);
    }
  }

  async #sessionWorker(session) {
    while (this.#running) {
      const { kind, status } = await this.#send(session);
      if (status === 404) await this.#reopen(session);
      else if (kind !== "result") await sleep(200);
      await sleep(THINK_MS);
    }
  }

  /** Takes several tries when the new session belongs to the instance that is coming back. */
  async #reopen(session) {
    for (let tries = 0; tries < 10; tries++) {
      session.notReopened = await session.open().then(
        () => undefined,
        (error) => error.message,
      );
      if (!session.notReopened) {
        session.reopened = (session.reopened ?? 0) + 1;
        return;
      }
      await sleep(100);
    }
  }

  #send(client) {
    const text = `load ${++this.#sent}`;
    const call = client.call("messages_send", { session_key: this.sessionKey, text });
    return this.#record(call, { text, session: client !== this.modern });
  }

  async #record(call, more = {}) {
    const at = performance.now();
    const { answer, id, tag } = await call;
    const { kind, why } = outcome(answer, id);
    const record = { at, kind, why, status: answer.status, tag, ...more };
    this.#records.push(record);
    return record;
  }

  async #wait(session) {
    const given = { session_key: this.quietKey, timeout_ms: 5_000 };
    const { answer, id, tag } = await session.call("events_wait", given, { limitMs: 20_000 });
    return { tag, restarted: Boolean(session.restarted), ms: answer.ms, ...outcome(answer, id) };
  }

  #stream(session) {
    const ends = new AbortController();
    const closed = session
      .listen(() => {}, ends.signal)
      .then((answer) => ({
        restarted: Boolean(session.restarted),
        at: performance.now(),
        ...answer,
      }));
    return { ends, closed };
  }

  get records() {
    return this.#records;
  }

  of(kind) {
    return this.#records.filter((record) => record.kind === kind);
  }

  /** Failed requests in which the restarted instance had no part. */
  blamedOnOthers() {
    return [...this.of("error"), ...this.of("unclear")].filter(
      ({ tag }) => !this.instances.get(tag)?.includes(RESTARTED),
    );
  }

  /** Messages whose arrival is not what the answer said. */
  wrongArrivals() {
    const wrong = [];
    const texts = new Set();
    for (const { text, kind } of this.#records) {
      if (text === undefined) continue;
      texts.add(text);
      const times = this.arrived.get(text) ?? 0;
      if (times > 1 || (kind === "result" && times !== 1))
        wrong.push(`${text}: ${kind}, ${times} times`);
    }
    for (const text of this.arrived.keys()) if (!texts.has(text)) wrong.push(`${text}: never sent`);
    return wrong;
  }
}
