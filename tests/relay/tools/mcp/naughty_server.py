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


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def answer(asked: dict[str, Any], result: Any) -> None:
    say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}))


def show(habit: str, asked: dict[str, Any]) -> None:
    if habit == "dies":
        sys.stderr.write("out of cheese with the token s3cret-token")
        sys.stderr.flush()
        os._exit(3)
    if habit == "rubbish":
        for _ in range(200):
            say("<html>not what you asked for</html>")
    if habit == "endless":
        sys.stdout.write("x" * 5_000_000)
        sys.stdout.flush()
    if habit == "wrong":
        answer(asked, {"content": "no list at all"})


def main() -> None:
    habit = sys.argv[1]
    if habit == "silent":
        sys.stdin.read()
    for line in sys.stdin:
        asked = json.loads(line)
        method = asked.get("method")
        if "id" not in asked:
            continue
        if method == "initialize":
            answer(asked, WELCOME)
        elif method == "tools/list":
            answer(asked, {"tools": TOOLS})
        elif method != "tools/call":
            say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}}))
        elif asked["params"]["name"] == "habit":
            show(habit, asked)
        else:
            answer(asked, {"content": [{"type": "text", "text": str(os.getpid())}]})


if __name__ == "__main__":
    main()
