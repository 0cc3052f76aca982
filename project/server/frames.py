"""Size limit of websocket messages, for servers that have none of their own or a large one (Granian)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from project.server.limits import MOST_FRAME_BYTES

Message = Mapping[str, Any]
TOO_BIG = 1009


def limit_frames(
    receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> Callable[[], Awaitable[Message]]:
    """The same `receive`. A message above the limit closes the socket."""

    async def receive_limited() -> Message:
        message = await receive()
        if len(message.get("text") or message.get("bytes") or "") <= MOST_FRAME_BYTES:
            return message
        await send({"type": "websocket.close", "code": TOO_BIG})
        return {"type": "websocket.disconnect", "code": TOO_BIG}

    return receive_limited
