#!/usr/bin/env python3
"""Resident memory of examples/echo_server with many clients.

    cargo build --profile bench --example echo_server
    python3 benches/residency.py target/release/examples/echo_server

Prints what the kernel says of the process (VmRSS) when idle, with 1,000 idle sessions of 2025-11-25 opened
over one connection, with 1,000 open event streams, and with 1,000 idle connections that were used once.
"""

import json
import resource
import socket
import subprocess
import sys
import time

CLIENTS = 1000
INITIALIZE = json.dumps({
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
})
CALL = json.dumps({
    "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "x" * 4096}},
})


class Server:
    def __init__(self, program):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen([program, "--listen", f"http://127.0.0.1:{self.port}/mcp"])
        for _ in range(200):
            try:
                self.connect().close()
                return
            except OSError:
                time.sleep(0.02)
        sys.exit("the server does not listen")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def resident_kib(self):
        # Buffers of a connection are given back after a second without a request.
        time.sleep(2.5)
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def end(self):
        self.process.terminate()
        self.process.wait()


def head_of(wire):
    got = b""
    while b"\r\n\r\n" not in got:
        more = wire.recv(65536)
        if not more:
            sys.exit("the connection ended")
        got += more
    head, _, rest = got.partition(b"\r\n\r\n")
    return head.decode(), rest


def post(wire, body, fields=""):
    wire.sendall((
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\n{fields}Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode())
    head, rest = head_of(wire)
    length = next((int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("Content-Length:")), 0)
    while len(rest) < length:
        rest += wire.recv(65536)
    return head


def open_session(wire):
    head = post(wire, INITIALIZE)
    return next(line for line in head.split("\r\n") if line.startswith("Mcp-Session-Id:")) + "\r\n"


def measure(program, what, clients):
    server = Server(program)
    before = server.resident_kib()
    kept = clients(server)
    after = server.resident_kib()
    print(f"{what:<34} {after / 1024:6.1f} MiB resident, {(after - before) * 1024 // CLIENTS:6d} bytes each")
    server.end()
    return kept


def idle_sessions(server):
    wire = server.connect()
    return wire, [open_session(wire) for _ in range(CLIENTS)]


def open_streams(server):
    wires, first = [], server.connect()
    for _ in range(CLIENTS):
        session, wire = open_session(first), server.connect()
        wire.sendall(f"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n{session}\r\n".encode())
        head, _ = head_of(wire)
        assert "text/event-stream" in head, head
        wires.append(wire)
    return wires


def idle_connections(server):
    wires = [server.connect() for _ in range(CLIENTS)]
    session = open_session(wires[0])
    for wire in wires:
        assert " 200 " in post(wire, CALL, session)
    return wires


def main():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 8192), limit))
    program = sys.argv[1]
    server = Server(program)
    print(f"{'idle':<34} {server.resident_kib() / 1024:6.1f} MiB resident")
    server.end()
    measure(program, f"{CLIENTS} idle sessions", idle_sessions)
    measure(program, f"{CLIENTS} open streams, a session each", open_streams)
    measure(program, f"{CLIENTS} idle connections", idle_connections)


main()
