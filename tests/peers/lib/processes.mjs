// Every process a run starts, and the proof at the end that none is left.
//
// Each child gets its own process group and the environment variable MARK, which its own children
// inherit. `stopAll` ends the groups; `leftovers` then looks for the mark in the whole process
// table, so that a process which left its group is found as well.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import fs from "node:fs";

const MARK = "DRAWSPAN_PEERS_RUN";
const mark = randomUUID();
const running = new Set();

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Resolves like `promise`, or rejects when `ms` have passed; `what` names the thing waited for. */
export function within(ms, what, promise) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing after ${ms} ms`)), ms);
  });
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer));
}

/** `env` with the mark, for children that somebody else starts on our behalf. */
export const marked = (env) => ({ ...env, [MARK]: mark });

/**
 * Starts `command` (an argv) and returns the child, with `child.ended` resolving to `{code,
 * signal}`.
 */
export function start(command, { env = process.env, cwd, stdio = "pipe" } = {}) {
  const child = spawn(command[0], command.slice(1), {
    env: marked(env),
    cwd,
    stdio,
    detached: true,
  });
  running.add(child);
  child.ended = new Promise((resolve) => {
    child.once("error", (error) => {
      running.delete(child);
      resolve({ code: null, signal: null, error: error.message });
    });
    child.once("exit", (code, signal) => {
      running.delete(child);
      resolve({ code, signal });
    });
  });
  return child;
}

/** Asks the child's whole group to end, waits, and kills what is left of it. */
export async function stop(child, graceMs = 10_000) {
  signalGroup(child, "SIGTERM");
  const how = await Promise.race([child.ended, sleep(graceMs)]);
  signalGroup(child, "SIGKILL");
  return how ?? child.ended;
}

export async function stopAll() {
  await Promise.all([...running].map((child) => stop(child, 5_000)));
}

/** Kills everything of this run at once, for the moments in which nothing can be awaited. */
export function killAll() {
  for (const child of running) signalGroup(child, "SIGKILL");
  for (const { pid } of leftovers() ?? []) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It is gone already.
    }
  }
}

function signalGroup(child, signal) {
  if (!child.pid) return;
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group is gone already.
  }
}

/**
 * Processes of this run that are still there: `[{pid, command}]`; undefined where there is no
 * /proc.
 */
export function leftovers() {
  if (!fs.existsSync("/proc/self/environ")) return undefined;
  const found = [];
  for (const name of fs.readdirSync("/proc")) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    try {
      if (!fs.readFileSync(`/proc/${name}/environ`, "latin1").includes(`${MARK}=${mark}`)) continue;
      const command = fs.readFileSync(`/proc/${name}/cmdline`, "utf8").replaceAll("\0", " ").trim();
      if (command) found.push({ pid: Number(name), command: command.slice(0, 120) });
    } catch {
      // It ended while we looked, or belongs to somebody else.
    }
  }
  return found;
}

/** Resident memory of a process and all below it in KiB, where /proc tells. */
export function residentKib(root) {
  if (!fs.existsSync("/proc/self/status")) return undefined;
  const table = new Map();
  for (const name of fs.readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const status = fs.readFileSync(`/proc/${name}/status`, "latin1");
      const field = (key) => Number(new RegExp(`^${key}:\\s+(\\d+)`, "m").exec(status)?.[1] ?? 0);
      table.set(Number(name), { parent: field("PPid"), kib: field("VmRSS") });
    } catch {
      // It ended while we looked.
    }
  }
  const below = (pid) => pid === root || (table.has(pid) && below(table.get(pid).parent));
  return [...table].filter(([pid]) => below(pid)).reduce((sum, [, { kib }]) => sum + kib, 0);
}
