// Compares two runs of the script.
//
// First what must differ from run to run is replaced: clock times, random ids, the HOME and its port. The
// seeded times of both Gateways are the same and stay as they are. Then each step must be equal, byte for
// byte in every text, except for what DIFFERENCES names.
import { isDeepStrictEqual } from "node:util";

const UUID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;
const ISO = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z/g;
/** Members that hold a measured duration. */
const DURATIONS = new Set(["runtimeMs", "durationMs"]);

/** Returns a function that replaces what is random in one side's results; ids are numbered as they appear. */
export function normaliser(gateway) {
  const ids = new Map();
  const numbered = (kind, id) => {
    if (!ids.has(id)) ids.set(id, `<${kind} ${ids.size + 1}>`);
    return ids.get(id);
  };
  const seeded = (ms) => ms >= gateway.base && ms < gateway.base + 600_000;
  const string = (value) =>
    value
      .replaceAll(gateway.home, "$HOME")
      .replaceAll(`127.0.0.1:${gateway.port}`, "$GATEWAY")
      .replace(UUID, (id) => numbered("uuid", id))
      .replace(/"[0-9a-f]{8}"/g, (id) => `"${numbered("id", id.slice(1, -1))}"`)
      .replace(/\b1[78]\d{11}\b/g, (ms) => (seeded(Number(ms)) ? ms : "<time>"))
      .replace(/("(?:runtimeMs|durationMs)": ?)\d+/g, "$1<duration>")
      .replace(ISO, "<time>");
  const walk = (value, key) => {
    if (Array.isArray(value)) return value.map((item) => walk(item));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, walk(v, k)]));
    if (typeof value === "string") return /^[0-9a-f]{8}$/.test(value) ? numbered("id", value) : string(value);
    if (typeof value !== "number") return value;
    if (DURATIONS.has(key)) return "<duration>";
    return value > 1.7e12 && value < 1.9e12 && !seeded(value) ? "<time>" : value;
  };
  return (value) => walk(JSON.parse(JSON.stringify(value ?? null)));
}
