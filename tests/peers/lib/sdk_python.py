"""The official Python client (2.x) over stdio, by handshake and with 2026-07-28.

Reads {"command": [...], "env": {...}, "cwd": "..."} from argv[1]; prints one JSON line per check:
{"check": name, "ok": bool, "detail": text}.
"""

import json
import sys

import anyio
from mcp import StdioServerParameters
from mcp.client import Client

CASES = [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")]


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


async def use(client, version):
    spoken = client.protocol_version
    expect(spoken == version, f"speaks {spoken}, expected {version}")
    tools = (await client.list_tools()).tools
    expect(len(tools) == 9, f"{len(tools)} tools")
    found = await client.call_tool("conversations_list", {"search": "Ada"})
    expect(not found.is_error, str(found.content))
    keys = [row["sessionKey"] for row in found.structured_content["conversations"]]
    expect(keys == ["agent:main:main"], str(keys))
    unknown = await client.call_tool("conversation_get", {"session_key": "agent:main:nope"})
    expect(unknown.is_error, "an unknown conversation is an error result")
    if version == "2026-07-28":
        async with client.listen(tools_list_changed=True) as subscription:
            expect(subscription.honored.tools_list_changed is True, "toolsListChanged is honoured")
    else:
        await client.send_ping()


async def main():
    given = json.loads(sys.argv[1])
    program, *args = given["command"]
    server = StdioServerParameters(command=program, args=args, env=given["env"], cwd=given["cwd"])
    for mode, version in CASES:
        try:
            with anyio.fail_after(30):
                async with Client(server, mode=mode, read_timeout_seconds=20) as client:
                    await use(client, version)
            report(f"mode {mode}", True)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the check failed
            report(f"mode {mode}", False, "\n".join(causes(error)))


anyio.run(main)
