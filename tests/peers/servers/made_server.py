"""One of each on the official Python SDK, which speaks both eras.

    made_server.py stdio
    made_server.py http PORT         sessions, answers as event streams
    made_server.py stateless PORT    no sessions, answers as JSON
    made_server.py sse PORT          HTTP+SSE of 2024-11-05
"""

import sys

from mcp.server import MCPServer
from pydantic import BaseModel

mode = sys.argv[1]
server = MCPServer("made", log_level="ERROR")


class Sum(BaseModel):
    total: int


@server.tool(structured_output=False)
def echo(text: str) -> str:
    """Returns its text."""
    return text


@server.tool()
def add(a: int, b: int) -> Sum:
    """Adds two numbers, as structured content."""
    return Sum(total=a + b)


@server.tool(structured_output=False)
def fail() -> str:
    """Fails."""
    raise ValueError("made to fail")


@server.resource("made://greeting")
def greeting() -> str:
    return "hello"


@server.resource("made://people/{name}")
def person(name: str) -> str:
    return f"this is {name}"


@server.prompt()
def ask(topic: str) -> str:
    return f"Tell me about {topic}"


if mode == "stdio":
    server.run()
elif mode == "sse":
    server.run("sse", host="127.0.0.1", port=int(sys.argv[2]))
else:
    plain = mode == "stateless"
    port = int(sys.argv[2])
    server.run(
        "streamable-http",
        host="127.0.0.1",
        port=port,
        json_response=plain,
        stateless_http=plain,
    )
