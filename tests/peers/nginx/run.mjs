// Three instances behind one nginx (nginx.conf.template, which is what the README shows).
//
//   run.mjs PEERS NGINX [--instance "COMMAND"] [--questions "COMMAND"]
//
// Started by ./run. COMMAND is split at blanks; in it {port}, {gateway}, {token} and {key} become
// the port to listen on, the URL of a Gateway, the file with its token and the file with the key
// for request states. --instance serves the Gateway; --questions a tool named
// test_input_required_result_request_state.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { startEmbeddedGateway } from "../lib/embedded-gateway.mjs";
import { harness, Server } from "../lib/harness.mjs";
import { Modern, outcome, Pair, resultOf, Session } from "../lib/http.mjs";
import { sleep, within } from "../lib/processes.mjs";
import { Load } from "./load.mjs";
import { Proxy } from "./proxy.mjs";
import { Relay } from "./relay.mjs";

const WHOLE_RUN_MS = 180_000;
// Longer than nginx waits for an answer if it is not told otherwise.
const LONG_WAIT_MS = Number(process.env.DRAWSPAN_NGINX_WAIT_MS ?? 65_000);
const MAIN = "agent:main:main";
const LOAD = "agent:main:load";
const LATE = "agent:main:late";
const HELD = "agent:main:held";
const HTTP = "--listen http://127.0.0.1:{port}";
const EVENT_TOOLS_ON = 0;
const RESTARTED = 1;
// As nginx.conf.template says.
const FAIL_TIMEOUT_MS = 1_000;

const here = path.dirname(new URL(import.meta.url).pathname);
const built = path.resolve(here, "../../../target/release");
const drawspan = path.resolve(process.env.DRAWSPAN ?? path.join(built, "drawspan"));
const everything = path.join(path.dirname(drawspan), "examples/everything_server");
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    instance: {
      type: "string",
      default: `${drawspan} serve --gateway {gateway} --token-file {token} ${HTTP}`,
    },
    questions: {
      type: "string",
      default: `${everything} ${HTTP} --request-state-key-file {key}`,
    },
  },
});
const [, nginx] = positionals;

await harness("nginx", WHOLE_RUN_MS, async ({ checks, home }) => {
  fs.chmodSync(home, 0o711);
  const gateway = await startEmbeddedGateway(drawspan, home, [MAIN, LOAD, LATE, HELD]);
  const relay = await new Relay(gateway.port).start();
  const given = { home, token: gateway.token, key: keyFile(home) };
  const gateways = [gateway.url, relay.url, gateway.url];
  const { instances, proxy } = await behindNginx(values.instance, "bridge", { ...given, gateways });
  const seen = { checks, proxy, gateway, relay, modern: new Modern(proxy.origin) };

  const longWaitEnds = longWait(seen);
  await inTurn(seen);
  await sessions(seen);
  await pair(seen);
  await eventTools(seen);
  await hostAndSize(seen);
  await rollingRestart(seen, instances[RESTARTED]);
  await restartWithCallsUnderWay(seen, instances[RESTARTED]);
  await questions({ checks, given });
  await longWaitEnds();
  await pinnedIsDown(seen, instances[EVENT_TOOLS_ON]);
  await checks.check("every instance ends by itself when asked to", async () => {
    for (const instance of instances) {
      const how = await instance.stop(10_000);
      assert.deepEqual(how, { code: 0, signal: null }, instance.tail);
    }
  });
  relay.stop();
});

function keyFile(home) {
  const file = path.join(home, "request-state-key");
  fs.writeFileSync(file, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600 });
  return file;
}

/** Three instances of `template` and an nginx in front of them. */
async function behindNginx(template, name, { home, gateways = [], token, key }) {
  const starting = [0, 1, 2].map((index) => {
    const values = { gateway: gateways[index], token, key };
    const fill = (part) => part.replace(/\{(gateway|token|key)\}/g, (_, what) => values[what]);
    return new Server(template.split(/\s+/).filter(Boolean).map(fill)).start();
  });
  const instances = await Promise.all(starting);
  const ports = instances.map(({ port }) => port);
  const proxy = await new Proxy({ nginx, directory: path.join(home, name), ports }).start();
  return { instances, proxy };
}

/** Waits for one event for longer than nginx would by itself, while everything else goes on. */
function longWait({ checks, proxy, gateway, modern }) {
  const given = { session_key: LATE, timeout_ms: LONG_WAIT_MS + 30_000 };
  const call = modern
    .call("events_wait", given, { limitMs: LONG_WAIT_MS + 60_000 })
    .then((called) => ({ ...called, at: performance.now() }));
  const posted = sleep(LONG_WAIT_MS).then(() => {
    gateway.post(LATE, "late");
    return performance.now();
  });
  return async () => {
    await checks.check(`an events_wait of ${LONG_WAIT_MS / 1000} s`, async () => {
      const { answer, id, tag, at } = await call;
      assert.equal(resultOf({ answer, id }).structuredContent.event?.text, "late");
      assert.ok(at > (await posted) - 1_000, "it was answered before the event");
      assert.ok(at < (await posted) + 10_000, "the event was held up");
      assert.equal(await proxy.instanceOf(tag), EVENT_TOOLS_ON);
    });
  };
}

async function inTurn({ checks, proxy, modern }) {
  await checks.check("calls without a session go to each instance in turn", async () => {
    const served = [0, 0, 0];
    for (let n = 0; n < 30; n++) {
      const called = await modern.call("conversation_get", { session_key: MAIN });
      assert.equal(resultOf(called).structuredContent.conversation.sessionKey, MAIN);
      served[await proxy.instanceOf(called.tag)]++;
    }
    assert.deepEqual(served, [10, 10, 10]);
  });
  await checks.check("server/discover and tools/list say the same wherever they go", async () => {
    for (const method of ["server/discover", "tools/list"]) {
      const said = new Set();
      for (let n = 0; n < 3; n++) said.add(JSON.stringify(resultOf(await modern.request(method))));
      assert.equal(said.size, 1, `${method}: ${[...said].join("\n")}`);
    }
  });
}

async function sessions({ checks, proxy, gateway }) {
  const versions = ["2025-11-25", "2025-06-18", "2025-03-26"];
  const open = (version) => new Session(proxy.origin).open(version);
  await checks.check("a session stays on its instance", async () => {
    const twelve = await Promise.all(Array.from({ length: 12 }, (_, n) => open(versions[n % 3])));
    assert.equal(new Set(twelve.map(({ id }) => id)).size, 12);
    const homes = new Set();
    for (const session of twelve) {
      const on = new Set();
      for (let n = 0; n < 5; n++) {
        const called = await session.call("conversation_get", { session_key: MAIN });
        resultOf(called);
        on.add(await proxy.instanceOf(called.tag));
      }
      assert.equal(on.size, 1, `one session went to instances ${[...on]}`);
      homes.add([...on][0]);
      const { status } = await session.end();
      assert.ok(status === 200 || status === 204, `DELETE: ${status}`);
    }
    assert.ok(homes.size > 1, `all sessions are on instance ${[...homes]}`);
  });
  await checks.check("the stream of a session brings a channel message at once", async () => {
    const session = await open();
    const ends = new AbortController();
    const came = new Promise((resolve) => {
      const take = ({ method, params }) => {
        if (method === "notifications/claude/channel") resolve(params.content);
      };
      const closed = session.listen(take, ends.signal);
      closed.then(({ status, broken }) => resolve(`it closed: ${status} ${broken}`));
    });
    await sleep(200);
    gateway.post(MAIN, "for the stream");
    const content = await within(3_000, "the notification", came).finally(() => ends.abort());
    assert.equal(content, "for the stream");
    await session.end();
  });
  await checks.check("a session that was ended is unknown, as is one that never was", async () => {
    const [ended, other] = [await open(), await open()];
    await ended.end();
    const stranger = new Session(proxy.origin);
    Object.assign(stranger, { version: "2025-11-25", id: `${"0".repeat(32)}.never-given` });
    for (const session of [ended, stranger]) {
      const { answer, id } = await session.request("tools/list");
      assert.equal(answer.status, 404);
      assert.equal(outcome(answer, id).kind, "error");
    }
    resultOf(await other.request("ping"));
    await other.end();
  });
}

async function pair({ checks, proxy }) {
  await checks.check("the pair of 2024-11-05", async () => {
    const client = await new Pair(proxy.origin).open();
    try {
      const { result } = await client.call("conversation_get", { session_key: MAIN });
      assert.equal(result.structuredContent.conversation.sessionKey, MAIN);
    } finally {
      client.close();
    }
  });
}

async function eventTools({ checks, proxy, gateway, modern }) {
  await checks.check("the event tools see one row of cursors", async () => {
    const poll = async (given) => {
      const called = await modern.call("events_poll", given);
      assert.equal(await proxy.instanceOf(called.tag), EVENT_TOOLS_ON);
      return resultOf(called).structuredContent;
    };
    let { next_cursor: cursor } = await poll({ limit: 200 });
    const texts = [];
    for (let n = 0; n < 7; n++) gateway.post(MAIN, `event ${n}`);
    const wait = { after_cursor: cursor + 6, timeout_ms: 5_000 };
    const { event } = resultOf(await modern.call("events_wait", wait)).structuredContent;
    assert.equal(event?.text, "event 6");
    for (let n = 0; n < 4; n++) {
      resultOf(await modern.call("conversation_get", { session_key: MAIN }));
      const { events, next_cursor } = await poll({ after_cursor: cursor, limit: 2 });
      events.forEach((event) => {
        assert.equal(event.cursor, ++cursor);
        texts.push(event.text);
      });
      assert.equal(next_cursor, cursor);
    }
    assert.deepEqual(
      texts,
      [0, 1, 2, 3, 4, 5, 6].map((n) => `event ${n}`),
    );
  });
}

async function hostAndSize({ checks, proxy, modern }) {
  const get = { session_key: MAIN };
  await checks.check(
    "a foreign Host and a foreign Origin are refused behind nginx too",
    async () => {
      const name = "evil.example.com";
      for (const headers of [{ host: name }, { origin: `http://${name}` }]) {
        const { answer, id } = await modern.call("conversation_get", get, { headers });
        assert.equal(answer.status, 403, JSON.stringify(headers));
        assert.equal(outcome(answer, id).kind, "error");
      }
    },
  );
  await checks.check("a request of 2 MiB passes, one of 5 MiB is refused", async () => {
    const padded = (mib) => modern.call("conversation_get", { ...get, pad: "x".repeat(mib << 20) });
    resultOf(await padded(2));
    const { answer } = await padded(5);
    assert.equal(answer.status, 413);
  });
}

async function rollingRestart({ checks, proxy, modern }, instance) {
  const load = new Load({ proxy, sessionKey: LOAD, quietKey: LATE });
  let how;
  await load.run(async () => {
    how = await instance.stop(10_000);
    await instance.start();
  });
  const took = Math.round(load.restartEnded - load.restartBegan);
  const counts = ["result", "error", "unclear"].map((kind) => load.of(kind).length);
  console.log(
    `restart under load: ${load.records.length} requests, ${counts[0]} answered, ${counts[1]} ` +
      `clear errors, ${counts[2]} unclear; the instance was away for ${took} ms`,
  );
  const why = new Map();
  for (const { status, why: text } of load.of("error")) {
    const line = `${status} ${text}`;
    why.set(line, (why.get(line) ?? 0) + 1);
  }
  for (const [line, times] of why) console.log(`  ${times} x ${line}`);
  const check = (name, act) => checks.check(`restart under load: ${name}`, act);
  const lines = (list, line) => list.slice(0, 10).map(line).join("\n");

  await check("the instance ended by itself", () =>
    assert.equal(how?.code, 0, JSON.stringify(how)),
  );
  await check("each request got one answer or one clear error", () =>
    assert.equal(
      counts[2],
      0,
      lines(load.of("unclear"), ({ why, tag }) => `${tag}: ${why}`),
    ),
  );
  await check("what was answered arrived once, the rest once at most", () => {
    assert.equal(load.collectFailed, undefined);
    assert.ok(load.arrived.size > 100, `only ${load.arrived.size} messages`);
    const wrong = load.wrongArrivals();
    assert.equal(wrong.length, 0, lines(wrong, String));
  });
  await check("the other instances lost nothing", () => {
    const blamed = load.blamedOnOthers();
    assert.equal(
      blamed.length,
      0,
      lines(blamed, ({ tag, why }) => `${tag}: ${why}`),
    );
  });
  await check("calls without a session went on", () => {
    const stateless = load.records.filter(({ session }) => !session);
    const lost = stateless.filter(({ kind }) => kind !== "result");
    assert.ok(lost.length <= stateless.length / 50, `${lost.length} of ${stateless.length}`);
  });
  await check("its sessions were opened anew, the others never noticed", () => {
    for (const session of load.sessions) {
      assert.equal(session.notReopened, undefined);
      const times = session.reopened ?? 0;
      assert.ok(session.restarted ? times > 0 : times === 0, `${times} times`);
    }
  });
  await check("calls that waited were answered", () => {
    for (const { restarted, kind, why } of load.waits)
      if (!restarted) assert.equal(kind, "result", why);
      else assert.notEqual(kind, "unclear", why);
  });
  await check("streams on it ended, the others went on", () => {
    for (const { restarted, at, status } of load.streams) {
      assert.equal(status, 200);
      const ended = at < load.restartEnded + 1_000;
      assert.equal(ended, restarted, restarted ? "it stayed open" : "it was cut");
    }
  });
  // nginx leaves an instance out for fail_timeout after each failure it saw, and may see several while it
  // comes up: how many rounds that takes is not ours to say.
  await check("it is used again", async () => {
    const rounds = [];
    for (let round = 0; round < 20; round++) {
      const served = [0, 0, 0];
      for (let n = 0; n < 30; n++) {
        const called = await modern.call("conversation_get", { session_key: MAIN });
        resultOf(called);
        served[await proxy.instanceOf(called.tag)]++;
      }
      if (served[RESTARTED] >= 9) return;
      rounds.push(served);
      await sleep(FAIL_TIMEOUT_MS / 2);
    }
    assert.fail(`of 30 calls each the instances served ${rounds.join(" then ")}`);
  });
}

/** Restarts an instance that has had things done whose answers are still to come. */
async function restartWithCallsUnderWay({ checks, proxy, modern, relay }, instance) {
  await checks.check(
    "restart with calls under way: none is lost silently or done twice",
    async () => {
      const sessions = await Promise.all(
        Array.from({ length: 9 }, () => new Session(proxy.origin).open()),
      );
      relay.lose('"runId"');
      const calls = [];
      for (let n = 0; n < 36; n++) {
        const client = n % 2 ? modern : sessions[(n / 2) % sessions.length];
        const text = `under way ${n}`;
        const call = client.call("messages_send", { session_key: HELD, text }, { limitMs: 20_000 });
        calls.push(call.then(({ answer, id, tag }) => ({ text, tag, ...outcome(answer, id) })));
      }
      await sleep(500);
      relay.loseNothing();
      await instance.stop(10_000);
      await instance.start();
      const ended = await Promise.all(calls);
      const given = { session_key: HELD, limit: 200 };
      const { events } = resultOf(await modern.call("events_poll", given)).structuredContent;
      let done = 0;
      for (const { text, tag, kind, why } of ended) {
        const on = await proxy.instancesOf(tag);
        const times = events.filter((event) => event.text === text).length;
        const what = `${text} at ${on}: ${kind}, arrived ${times} times: ${why}`;
        assert.notEqual(kind, "unclear", what);
        assert.ok(kind === "result" ? times === 1 : times <= 1, what);
        assert.ok(kind === "result" || on.includes(RESTARTED), what);
        if (kind === "error" && times === 1) done++;
      }
      assert.ok(done >= 3, `only ${done} calls had been done without an answer`);
      await Promise.all(sessions.map((session) => session.end()));
    },
  );
}

async function questions({ checks, given }) {
  let behind;
  try {
    behind = await behindNginx(values.questions, "questions", given);
  } catch (error) {
    checks.fail("three instances that ask questions", error.message);
    return;
  }
  const { proxy, instances } = behind;
  const modern = new Modern(proxy.origin);
  const tool = "test_input_required_result_request_state";
  const ask = (more) =>
    modern.request(
      "tools/call",
      { name: tool, arguments: {}, ...more },
      { capabilities: { elicitation: {} } },
    );
  const answers = ({ inputRequests }) =>
    Object.fromEntries(
      Object.keys(inputRequests).map((key) => [key, { action: "accept", content: { ok: true } }]),
    );
  await checks.check("a question asked by one instance is answered at another", async () => {
    const ways = new Set();
    for (let n = 0; n < 6; n++) {
      const first = await ask();
      const asked = resultOf(first);
      assert.equal(asked.resultType, "input_required");
      const second = await ask({
        requestState: asked.requestState,
        inputResponses: answers(asked),
      });
      const result = resultOf(second);
      assert.equal(result.resultType, "complete");
      assert.match(JSON.stringify(result.content), /state-ok/);
      ways.add(`${await proxy.instanceOf(first.tag)} ${await proxy.instanceOf(second.tag)}`);
      // Moves the turn on, so that each instance gets to be the first.
      resultOf(await modern.request("tools/list"));
      if (n % 2) resultOf(await modern.request("tools/list"));
    }
    const crossing = [...ways].filter((way) => way[0] !== way[2]);
    assert.ok(crossing.length >= 3, `ways: ${[...ways].join(", ")}`);
  });
  await checks.check("a changed request state is refused wherever it goes", async () => {
    const asked = resultOf(await ask());
    for (let n = 0; n < 3; n++) {
      const requestState = `${asked.requestState}-TAMPERED`;
      const { answer, id } = await ask({ requestState, inputResponses: answers(asked) });
      const mine = answer.messages.find((message) => message.id === id);
      assert.ok(mine?.error, `it got ${answer.text.slice(0, 300)}`);
    }
  });
  await proxy.stop();
  await Promise.all(instances.map((instance) => instance.stop(10_000)));
}

/** The event tools are never answered by an instance whose cursors mean something else. */
async function pinnedIsDown({ checks, proxy, modern }, instance) {
  await checks.check(
    "without its instance an event tool fails clearly and nobody steps in",
    async () => {
      await instance.stop(10_000);
      const { answer, id, tag } = await modern.call("events_poll", {});
      assert.equal(answer.status, 503, answer.text.slice(0, 300));
      assert.equal(answer.headers["retry-after"], "1");
      assert.equal(outcome(answer, id).kind, "error");
      assert.equal(await proxy.instanceOf(tag), EVENT_TOOLS_ON);
      await instance.start();
      const again = await modern.call("events_poll", {});
      assert.deepEqual(resultOf(again).structuredContent.events, []);
      assert.equal(await proxy.instanceOf(again.tag), EVENT_TOOLS_ON);
    },
  );
}
