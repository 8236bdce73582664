// What the script writes down, and the verbs its chapters are written in.

/** A script that met this many broken steps is given up: what follows would only wait. */
const BROKEN_MAX = 4;

export class Recorder {
  /** Step name -> result, in the order of the script. */
  steps = new Map();
  broken = [];

  async step(name, act) {
    if (this.steps.has(name)) throw new Error(`two steps are called "${name}"`);
    if (this.broken.length >= BROKEN_MAX) return undefined;
    let result;
    try {
      result = await act();
    } catch (error) {
      this.broken.push(`${name}: ${error.message}`);
      result = { broken: error.message };
    }
    this.steps.set(name, result);
    return result;
  }
}

/**
 * The helpers a chapter of the script uses, bound to its client and the prefix of its step names.
 */
export function bind(record, client, prefix = "") {
  const step = (name, act) => record.step(prefix + name, act);
  const poll = (args) => client.tool("events_poll", args);
  return {
    step,
    /** One tool call as a step named after the call. */
    call: (tool, args = {}, note) =>
      step([tool, JSON.stringify(args), note && `(${note})`].filter(Boolean).join(" "), () =>
        client.tool(tool, args),
      ),
    /** Waits until the queue holds an event with this cursor. */
    eventAt: async (cursor) => {
      const { structuredContent } = await client.tool("events_wait", {
        after_cursor: cursor - 1,
        timeout_ms: 30_000,
      });
      if (!structuredContent?.event) throw new Error(`no event ${cursor} after 30 s`);
    },
    /** The cursor of the newest event. */
    cursor: async () => {
      let at = 0;
      for (;;) {
        const { structuredContent } = await poll({ after_cursor: at, limit: 200 });
        if (!structuredContent.events.length) return at;
        at = structuredContent.next_cursor;
      }
    },
  };
}
