#!/usr/bin/env python3
"""What a bridge adds to one call: drawspan beside other bridges, in front of the same server.

    cargo build --release
    cargo build --profile bench --example echo_server
    python3 benches/bridges.py target/release/drawspan target/release/examples/echo_server [PEERS]

PEERS is a directory with other bridges; those that are not in it are left out:

    npm install --prefix PEERS supergateway@4.0.0 mcp-proxy@6.7.19 mcp-remote@0.15.1
    python3 -m venv PEERS/venv && PEERS/venv/bin/pip install mcp-proxy==0.13.0
    cargo install --root PEERS mcp-proxy@0.6.0

`--only WORD` runs the bridges with this in their name, `--seconds S` and `--rounds N` say how long a cell takes
and how often (medians count; every other round goes backwards; each cell is run once unmeasured first).

`client>server` names the two sides. One client of 2025-11-25 calls `echo` and checks every reply, with one call
in flight or as many as `--in-flight` says: those leave together, over HTTP each on a connection of its own, and
the next ones when all are answered. CPU is what the kernel counted for all threads (schedstat), in microseconds a
call: `bridge` of the bridge and its helpers, `server` of the echo server behind it, `added` of both less what the
server alone takes when it is called directly over the same transport. `p50` is the client's median, `+p50` the
same less the direct call's. `bridge+bridge` are two of a kind in a row, for those that cannot do HTTP to HTTP.

The last lines are the memory of `drawspan serve` with 10 servers and 100 sessions that have called each.
"""

import argparse
import json
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable, NamedTuple

SIZES = (64, 4096)
LINE = 'a line of text as a tool prints it, with a "quoted" word in it\n'
CALLS_LEAST = 20
SERVERS, SESSIONS = 10, 100


# --- Processes -------------------------------------------------------------------------------------------


def tree(root):
    """`root` and all its descendants."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as stat:
                    parent = int(stat.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def cpu_ns(pids):
    total = 0
    for pid in pids:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat") as stat:
                    total += int(stat.read().split()[0])
        except OSError:
            continue
    return total


def is_program(pid, program):
    try:
        return os.path.samefile(f"/proc/{pid}/exe", program)
    except OSError:
        return False


def kib(pids, file, field):
    total = 0
    for pid in pids:
        with open(f"/proc/{pid}/{file}") as lines:
            total += next(int(line.split()[1]) for line in lines if line.startswith(field))
    return total


def start(command, pipes=False):
    pipe = subprocess.PIPE if pipes else subprocess.DEVNULL
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)


def end(process):
    started = tree(process.pid)
    if process.stdin:
        process.stdin.close()
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    time.sleep(0.1)
    for pid in started[1:]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- Clients: `post` sends one message, `reply` waits for the next answer and gives its bytes -------------


class Lines:
    def __init__(self, process):
        self.out, self.inp, self.rest = process.stdin, process.stdout.fileno(), b""

    def together(self, count):
        return [self] * count

    def notify(self, message):
        self.post(message)

    def post(self, message):
        self.out.write(message + b"\n")

    def reply(self):
        while True:
            while b"\n" not in self.rest:
                more = os.read(self.inp, 1 << 16)
                if not more:
                    raise ConnectionError("the bridge ended")
                self.rest += more
            line, _, self.rest = self.rest.partition(b"\n")
            if b'"result":' in line or b'"error":' in line:
                return line


class Http:
    def __init__(self, port, path):
        self.wire = socket.create_connection(("127.0.0.1", port), timeout=15)
        self.wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port, self.path, self.fields, self.rest = port, path, "", b""

    def together(self, count):
        """So many connections of one session."""
        others = [Http(self.port, self.path) for _ in range(count - 1)]
        for other in others:
            other.fields = self.fields
        return [self, *others]

    def notify(self, message):
        self.post(message)
        self.reply()

    def post(self, message):
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\n{self.fields}Content-Length: {len(message)}\r\n\r\n"
        )
        self.wire.sendall(head.encode() + message)

    def reply(self):
        fields, body = self.answer()
        if "mcp-session-id" in fields:
            self.fields = f"Mcp-Session-Id: {fields['mcp-session-id']}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        if not 200 <= fields["status"] < 300:
            raise ConnectionError(f"status {fields['status']}")
        if "event-stream" in fields.get("content-type", ""):
            return next(line[5:] for line in body.splitlines() if line.startswith(b"data:") and b"jsonrpc" in line)
        return body

    def more(self):
        got = self.wire.recv(1 << 16)
        if not got:
            raise ConnectionError("the connection ended")
        self.rest += got

    def until(self, mark):
        while mark not in self.rest:
            self.more()
        before, _, self.rest = self.rest.partition(mark)
        return before

    def take(self, count):
        while len(self.rest) < count:
            self.more()
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def answer(self):
        first, *lines = self.until(b"\r\n\r\n").decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        fields["status"] = int(first.split()[1])
        if "transfer-encoding" not in fields:
            return fields, self.take(int(fields.get("content-length", 0)))
        body = b""
        while size := int(self.until(b"\r\n"), 16):
            body += self.take(size)
            self.take(2)
        self.until(b"\r\n")
        return fields, body


def handshake(client):
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    client.post(json.dumps(request).encode())
    answer = json.loads(client.reply())
    if "result" not in answer:
        raise ConnectionError(f"no handshake: {answer}")
    client.notify(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')


def connected(open_client):
    """A client that is through with its handshake; what only just started is tried again."""
    last = None
    for _ in range(150):
        try:
            client = open_client()
            handshake(client)
            return client
        except (OSError, ConnectionError, ValueError) as error:
            last = error
            time.sleep(0.1)
    raise ConnectionError(str(last))


def calls(clients, size, tool, seconds, least):
    """Nanoseconds of each call; all clients have one in flight."""
    filler = (LINE * (size // len(LINE) + 1))[: size - 8]
    params = json.dumps({"name": tool, "arguments": {"text": "????????" + filler}})
    request = f'{{"jsonrpc":"2.0","id":????????,"method":"tools/call","params":{params}}}'
    before, middle, after = request.split("????????")
    taken, number, stop = [], 10_000_000, time.perf_counter() + seconds
    while len(taken) < least or time.perf_counter() < stop:
        numbers = range(number, number := number + len(clients))
        answers, begin = [], time.perf_counter_ns()
        for client, each in zip(clients, numbers):
            client.post(f"{before}{each}{middle}{each}{after}".encode())
        for client in clients:
            answers.append(client.reply())
            taken.append(time.perf_counter_ns() - begin)
        expected = {each: f"{each}{filler}" for each in numbers}
        for answer in map(json.loads, answers):
            if answer["result"]["content"][0]["text"] != expected.pop(answer["id"], None):
                raise ConnectionError(f"a wrong answer: {str(answer)[:200]}")
    return taken


# --- The bridges ----------------------------------------------------------------------------------------


class Subject(NamedTuple):
    pair: str
    name: str
    # Has to exist.
    program: str
    # From the port to listen on and the URL of the server over HTTP.
    command: Callable[[int, str], list[str]]
    path: str = "/mcp"
    tool: str = "echo"


def subjects(drawspan, server, peers, work):
    bin_npm, py, rust = f"{peers}/node_modules/.bin", f"{peers}/venv/bin/mcp-proxy", f"{peers}/bin/mcp-proxy"
    sg, remote, npm = f"{bin_npm}/supergateway", f"{bin_npm}/mcp-remote", f"{bin_npm}/mcp-proxy"

    def listen(port):
        return ["--listen", f"http://127.0.0.1:{port}"]

    def sg_in(command, port):
        return [sg, "--stdio", shlex.join(command), "--outputTransport", "streamableHttp", "--stateful",
                "--logLevel", "none", "--port", str(port)]

    def sg_out(url):
        return [sg, "--streamableHttp", url, "--logLevel", "none"]

    def py_in(command, port):
        return [py, "--port", str(port), "--log-level", "ERROR", "--", *command]

    def py_out(url):
        return [py, "--transport", "streamablehttp", "--log-level", "ERROR", url]

    def rust_in(backend, port):
        with open(f"{work}/proxy.toml", "w") as file:
            file.write(f'[proxy]\nname = "p"\n[proxy.listen]\nhost = "127.0.0.1"\nport = {port}\n[observability]\n'
                       f'log_level = "error"\n[[backends]]\nname = "s"\n{backend}\n')
        return [rust, "--config", f"{work}/proxy.toml"]

    yield Subject("http", "direct", server, lambda port, _: [server, "--listen", f"http://127.0.0.1:{port}/mcp"])
    yield Subject("stdio", "direct", server, lambda *_: [server])
    pair = "stdio>http"
    yield Subject(pair, "drawspan", drawspan, lambda _, url: [drawspan, "serve", url])
    yield Subject(pair, "supergateway", sg, lambda _, url: sg_out(url))
    yield Subject(pair, "mcp-remote", remote, lambda _, url: [
        remote, url, "--transport", "http-only", "--allow-http"])
    yield Subject(pair, "PyPI mcp-proxy", py, lambda _, url: py_out(url))
    pair = "http>stdio"
    yield Subject(pair, "drawspan", drawspan, lambda port, _: [drawspan, "serve", *listen(port), "--", server])
    yield Subject(pair, "supergateway", sg, lambda port, _: sg_in([server], port))
    yield Subject(pair, "npm mcp-proxy", npm, lambda port, _: [
        npm, "--host", "127.0.0.1", "--port", str(port), "--server", "stream", "--", server])
    yield Subject(pair, "PyPI mcp-proxy", py, lambda port, _: py_in([server], port))
    yield Subject(pair, "Rust mcp-proxy", rust, lambda port, _: rust_in(
        f'transport = "stdio"\ncommand = "{server}"', port), "/", "s/echo")
    pair = "http>http"
    yield Subject(pair, "drawspan", drawspan, lambda port, url: [drawspan, "serve", *listen(port), url])
    yield Subject(pair, "supergateway+supergateway", sg, lambda port, url: sg_in(sg_out(url), port))
    yield Subject(pair, "PyPI mcp-proxy+mcp-proxy", py, lambda port, url: py_in(py_out(url), port))
    yield Subject(pair, "Rust mcp-proxy", rust, lambda port, url: rust_in(
        f'transport = "http"\nurl = "{url}"', port), "/", "s/echo")


def serve_http(server):
    """The server over HTTP, and its URL."""
    port = free_port()
    process = start([server, "--listen", f"http://127.0.0.1:{port}/mcp"])
    connected(lambda: Http(port, "/mcp"))
    return process, f"http://127.0.0.1:{port}/mcp"


def measure(subject, server, seconds, in_flight):
    """Per size: microseconds of the bridge, of the server, and of the median call."""
    back, url = serve_http(server)
    port, over_lines = free_port(), subject.pair.startswith("stdio")
    process = start(subject.command(port, url), pipes=over_lines)
    try:
        client = connected(lambda: Lines(process) if over_lines else Http(port, subject.path))
        clients, cells = client.together(in_flight), []
        for size in SIZES:
            calls(clients, size, subject.tool, seconds, CALLS_LEAST)
            everyone = tree(process.pid)
            servers = [back.pid, *(pid for pid in everyone if is_program(pid, server))]
            bridges = [pid for pid in everyone if pid not in servers]
            before = cpu_ns(bridges), cpu_ns(servers)
            taken = calls(clients, size, subject.tool, seconds, CALLS_LEAST)
            after = cpu_ns(bridges), cpu_ns(servers)
            each = [(b - a) / 1000 / len(taken) for a, b in zip(before, after)]
            cells.append((*each, statistics.median(taken) / 1000))
        return cells
    finally:
        end(process)
        end(back)


def report(results):
    median = lambda key, column: statistics.median(cell[column] for cell in results[key])
    print(f"{'us a call':<40} {'size':>5} {'bridge':>8} {'server':>8} {'added':>8} {'p50':>8} {'+p50':>8}")
    for key in results:
        (pair, name), size = key[:2], key[2]
        bridge, server, p50 = (median(key, column) for column in range(3))
        direct = (pair.rpartition(">")[2], "direct", size)
        if name == "direct" or direct not in results:
            print(f"{pair + ' ' + name:<40} {size:>5} {bridge:>8.1f} {server:>8.1f} {'':>8} {p50:>8.1f}")
            continue
        added = bridge + server - median(direct, 1)
        print(f"{pair + ' ' + name:<40} {size:>5} {bridge:>8.1f} {server:>8.1f} {added:>8.1f} {p50:>8.1f} "
              f"{p50 - median(direct, 2):>8.1f}")


# --- Memory ---------------------------------------------------------------------------------------------


def memory(drawspan, server, work, kind):
    """`kind`: processes that all clients share, or one over HTTP with a session for each client and entry."""
    back, url = serve_http(server)
    port = free_port()
    entry = {"command": server, "isolation": "shared"} if kind != "HTTP" else {"url": url}
    with open(f"{work}/servers.json", "w") as file:
        json.dump({"mcpServers": {f"s{number}": entry for number in range(SERVERS)}}, file)
    process = start([drawspan, "serve", "--config", f"{work}/servers.json", "--listen", f"http://127.0.0.1:{port}"])
    try:
        clients = []
        for count in (1, SESSIONS):
            while len(clients) < count:
                clients.append(connected(lambda: Http(port, "/mcp")))
                for number in range(SERVERS):
                    calls(clients[-1:], 64, f"s{number}__echo", 0, 1)
            # Buffers of a connection are given back after a second without a request.
            time.sleep(2.5)
            helpers = [pid for pid in tree(process.pid)[1:] if not is_program(pid, server)]
            resident = kib([process.pid], "status", "VmRSS:") / 1024
            share = kib(helpers, "smaps_rollup", "Pss:") / 1024
            print(f"{SERVERS} {kind} servers, {count:>3} sessions: {resident:.1f} MiB resident, "
                  f"{len(helpers)} helpers of {share:.1f} MiB together (PSS)")
    finally:
        end(process)
        end(back)


def stuck(*_):
    raise TimeoutError("stuck")


def main():
    signal.signal(signal.SIGALRM, stuck)
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("drawspan")
    options.add_argument("server")
    options.add_argument("peers", nargs="?", default=os.devnull)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--in-flight", type=int, default=1)
    options.add_argument("--only", default="")
    given = options.parse_args()
    drawspan, server, peers = (os.path.abspath(path) for path in (given.drawspan, given.server, given.peers))
    with tempfile.TemporaryDirectory() as work:
        chosen = [subject for subject in subjects(drawspan, server, peers, work)
                  if subject.name == "direct" or given.only in f"{subject.pair} {subject.name}"]
        missing = [subject for subject in chosen if not os.path.exists(subject.program)]
        chosen = [subject for subject in chosen if subject not in missing]
        print("not there:", ", ".join(f"{subject.pair} {subject.name}" for subject in missing) or "none")
        results = {(s.pair, s.name, size): [] for s in chosen for size in SIZES}
        for turn in range(given.rounds):
            for subject in chosen if turn % 2 == 0 else reversed(chosen):
                signal.alarm(int(30 + 10 * given.seconds))
                try:
                    cells = measure(subject, server, given.seconds, given.in_flight)
                except (OSError, ConnectionError, KeyError, ValueError) as error:
                    print(f"{subject.pair} {subject.name}: {type(error).__name__}: {error}", file=sys.stderr)
                    continue
                for size, cell in zip(SIZES, cells):
                    results[subject.pair, subject.name, size].append(cell)
        signal.alarm(0)
        report({key: cells for key, cells in results.items() if cells})
        for kind in ("shared stdio", "HTTP"):
            memory(drawspan, server, work, kind)


main()
