"""A server by hand, with one bad habit: hangs, dies, is silent, sends rubbish, or a line without end.

Without the SDK, so that it starts in no time. Its tool `habit` shows the habit, `fine` answers with the process id.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("habit", "fine")]
WELCOME = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "naughty", "version": "1"},
}


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: Any) -> None:
    print_line(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}))


def show(habit: str, request: dict[str, Any]) -> None:
    if habit == "dies":
        sys.stderr.write("out of cheese with the token s3cret-token")
        sys.stderr.flush()
        os._exit(3)
    if habit == "rubbish":
        for _ in range(200):
            print_line("<html>not what you asked for</html>")
    if habit == "endless":
        sys.stdout.write("x" * 5_000_000)
        sys.stdout.flush()
    if habit == "wrong":
        answer(request, {"content": "no list at all"})


def main() -> None:
    habit = sys.argv[1]
    if habit == "silent":
        sys.stdin.read()
    for line in sys.stdin:
        request = json.loads(line)
        method = request.get("method")
        if "id" not in request:
            continue
        if method == "initialize":
            answer(request, WELCOME)
        elif method == "tools/list":
            answer(request, {"tools": TOOLS})
        elif method != "tools/call":
            print_line(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}}))
        elif request["params"]["name"] == "habit":
            show(habit, request)
        else:
            answer(request, {"content": [{"type": "text", "text": str(os.getpid())}]})


if __name__ == "__main__":
    main()
