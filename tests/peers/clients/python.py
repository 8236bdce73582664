"""The official Python client (2.x) on every transport, by handshake and with 2026-07-28.

Reads {"facts": {...}, "places": [...]} from argv[1]; prints one JSON line per check:
{"check": name, "ok": bool, "detail": text}.
"""

import json
import sys

import anyio
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.sse import sse_client

LEGACY = [("legacy", "2025-11-25")]
BOTH = LEGACY + [("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")]


def report(name, ok, detail=""):
    print(json.dumps({"check": name, "ok": ok, "detail": detail}), flush=True)


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def causes(error):
    """What went wrong, out of the groups a task group wraps it in."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in causes(inner)]
    return [f"{type(error).__name__}: {error}"[:1500]]


def server(place):
    if place["name"] == "stdio":
        program, *args = place["command"]
        return StdioServerParameters(
            command=program, args=args, env=place["env"], cwd=place["cwd"]
        )
    return sse_client(place["url"]) if place["name"] == "sse" else place["url"]


async def use(client, facts, version):
    spoken = client.protocol_version
    expect(spoken == version, f"speaks {spoken}, expected {version}")
    conditional = facts.get("conditional", [])
    names = [tool.name for tool in (await client.list_tools()).tools]
    tools = [name for name in names if name not in conditional]
    expect(tools == facts["tools"], f"tools: {tools}")
    call = facts["call"]
    result = await client.call_tool(call["name"], call["arguments"])
    text = result.model_dump_json(by_alias=True, exclude_none=True)
    expect(not result.is_error and call["contains"] in text, f"the call gave {text[:500]}")
    if failing := facts.get("failing"):
        result = await client.call_tool(failing["name"], failing["arguments"])
        expect(result.is_error, "a failing call is an error result")


async def main():
    given = json.loads(sys.argv[1])
    for place in given["places"]:
        for mode, version in BOTH if place["modern"] else LEGACY:
            name = f"over {place['name']}, {mode}"
            try:
                with anyio.fail_after(30):
                    async with Client(server(place), mode=mode, read_timeout_seconds=20) as client:
                        await use(client, given["facts"], version)
                report(name, True)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the check failed
                report(name, False, "\n".join(causes(error)))


anyio.run(main)
