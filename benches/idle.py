#!/usr/bin/env python3
"""Resident memory of the program while it waits.

    cargo build --release
    cargo build --profile bench --example echo_server
    python3 benches/idle.py target/release/drawspan target/release/examples/echo_server

For each way to run it: the median and the range of what the kernel counts, and the median of its parts in KiB.
`program` is code and constants of the file, `libraries` the C library and its kin (most of them resident
anyway: other programs use them), `private` what is ours alone. The range is that of the addresses: the kernel
maps 16 pages around each that is used, and a program lies elsewhere each time.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

STARTS = 12
OPENING = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
]


def memory(pid):
    """KiB: all that is resident, then program, libraries, private."""
    with open(f"/proc/{pid}/smaps") as lines:
        mappings = lines.read().splitlines()
    program = os.readlink(f"/proc/{pid}/exe")
    parts, name = [0, 0, 0], ""
    for line in mappings:
        words = line.split()
        if not words[0].endswith(":"):
            name = words[5] if len(words) > 5 else ""
        elif words[0] == "Rss:":
            resident = int(words[1])
        elif words[0] == "Anonymous:":
            parts[2] += int(words[1])
            parts[0 if name == program else 1] += resident - int(words[1])
    return [sum(parts), *parts]


def idle(command):
    """One start: how long the first answer took in ms, the program's memory and that of its guardians."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": os.environ["PATH"], "HOME": home}
        began = time.monotonic()
        process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for message in OPENING:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            if "id" in message and not process.stdout.readline():
                sys.exit("it ended")
            if message["method"] == "initialize":
                answered = time.monotonic() - began
        # What starting has left to do, it does within this.
        time.sleep(0.5)
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            guardians = [memory(int(pid)) for pid in children.read().split()]
        found = memory(process.pid)
        process.communicate()
    return answered * 1000, found, guardians


def show(what, found):
    total = [one[0] for one in found]
    parts = (f"{statistics.median(part):7.0f}" for part in list(zip(*found))[1:])
    print(f"{what:<26}{statistics.median(total):7.0f}  {min(total):5d} to {max(total):5d}", *parts)


def main():
    program, server = (os.path.abspath(path) for path in sys.argv[1:3])
    print(f"KiB, {STARTS} starts             median  range            program libraries private")
    for what, command in (
        ("serve --gateway embedded", [program, "serve", "--gateway", "embedded"]),
        ("serve -- SERVER", [program, "serve", "--", server]),
    ):
        starts = [idle(command) for _ in range(STARTS)]
        show(what, [found for _, found, _ in starts])
        guardians = [guardian for _, _, found in starts for guardian in found]
        if guardians:
            show("  its guardian", guardians)
        print(f"  first answer after {statistics.median(start for start, _, _ in starts):.1f} ms")


main()
