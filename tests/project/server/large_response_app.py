"""An application that sends a lot, and writes down how much it was let send."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from project.server.flow_control import paced

PIECES, PIECE = 1_600, b"x" * 65_536


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    send = paced(send)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/healthz":
        await send({"type": "http.response.body", "body": b"ok"})
        return
    for number in range(PIECES):
        await send({"type": "http.response.body", "body": PIECE, "more_body": True})
        _note(number + 1)
    await send({"type": "http.response.body", "body": b"end"})


def _note(count: int) -> None:
    Path(os.environ["TORRENT_SENT"]).write_text(str(count))
