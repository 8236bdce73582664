// What every client has to see of the server under test. Another server's facts may be given to
// ./run as a JSON file of the same shape.
export const CONVERSATION = "agent:main:main";

export const FACTS = {
  tools: [
    "conversations_list",
    "conversation_get",
    "messages_read",
    "attachments_fetch",
    "events_poll",
    "events_wait",
    "messages_send",
    "permissions_list_open",
    "permissions_respond",
  ],
  /** A call and a text that its result, written as JSON, contains. */
  call: {
    name: "conversation_get",
    arguments: { session_key: CONVERSATION },
    contains: `"sessionKey":"${CONVERSATION}"`,
  },
  /** A call whose result says isError; undefined when the server has none. */
  failing: { name: "conversation_get", arguments: { session_key: "agent:main:nope" } },
};

/**
 * Throws unless `names` are the tools of `facts`, in their order. `facts.conditional` are those that a
 * server has for some clients only.
 */
export function expectTools(facts, all) {
  const names = all.filter((name) => !facts.conditional?.includes(name));
  if (JSON.stringify(names) !== JSON.stringify(facts.tools))
    throw new Error(`tools: ${names.join(", ")}`);
}

/** Throws unless `result` is what `facts.call` leads to. */
export function expectCalled(facts, result) {
  const text = JSON.stringify(result);
  if (result.isError || !text.includes(facts.call.contains))
    throw new Error(`the call gave ${text.slice(0, 500)}`);
}
