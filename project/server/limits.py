"""Limits of time, size and number for requests and websockets. docs/setup.md explains them.

Each frame of a websocket is handled in Python on the event loop: 8 MB of tiny ones stopped Daphne and Uvicorn for five
seconds.
"""

import time

from relay.runtime.asgi import Message, Receive, Send

ANYONE_BYTES = 64 * 1024  # any sender may send this much to any path: enough for a sign-in form or a small API call
# A known sender, on paths that name no limit of their own. Django reads at most 2.5 MB of form fields.
KNOWN_BYTES = 3 * 1024 * 1024

# One message of a websocket. Daphne has the same limit of its own.
MOST_FRAME_BYTES = 1024 * 1024

# Frames of one websocket, pings and fragments included: at once, and in each second. A client sends a few.
FRAMES_AT_ONCE, FRAMES_PER_SECOND = 2_000, 200

HEADER_SECONDS = 10.0
# A body may take this long, and longer if bytes keep coming at this rate.
BODY_SECONDS = 30.0
BODY_BYTES_PER_SECOND = 10_000
# After an early answer the rest of a body is read and dropped for a moment. Closing at once would reset the connection,
# and the client would never see the answer.
LINGER_SECONDS = 2.0

# Idle connections between two requests. Longer than the 60 seconds for which common proxies keep theirs.
KEEP_ALIVE_SECONDS = 75
TOO_BIG = 1009


def limit_frames(receive: Receive, send: Send) -> Receive:
    """The same `receive`. A message above the limit closes the socket."""

    async def receive_limited() -> Message:
        message = await receive()
        if len(message.get("text") or message.get("bytes") or "") <= MOST_FRAME_BYTES:
            return message
        await send({"type": "websocket.close", "code": TOO_BIG})
        return {"type": "websocket.disconnect", "code": TOO_BIG}

    return receive_limited


class FrameMeter:
    """Counts the frames that a client sends, by their headers alone, before the server parses any of them."""

    def __init__(self) -> None:
        self._is_handshake = True
        self._head = b""  # of a frame whose header is not complete
        self._skip = 0  # bytes of a payload that are still to come
        self._left, self._at = float(FRAMES_AT_ONCE), time.monotonic()

    def allows(self, data: bytes) -> bool:
        """Whether the client has kept to the limit with these bytes. The first ones are the handshake."""
        if self._is_handshake:
            self._is_handshake = False
            data = data.partition(b"\r\n\r\n")[2]
        now = time.monotonic()
        self._left = min(FRAMES_AT_ONCE, self._left + (now - self._at) * FRAMES_PER_SECOND)
        self._at = now
        return self._count(data)

    def _count(self, data: bytes) -> bool:
        place = self._skip
        if place > len(data):
            self._skip -= len(data)
            return True
        self._skip = 0
        if self._head:
            data, place, self._head = self._head + data[place:], 0, b""
        while place < len(data):
            start, size = place, len(data) - place
            length = data[start + 1] & 0x7F if size > 1 else 0
            header = 2 + {126: 2, 127: 8}.get(length, 0) + 4
            if size < header:
                self._head = data[start:]
                return True
            if length > 125:
                length = int.from_bytes(data[start + 2 : start + header - 4], "big")
            place += header + length
            self._left -= 1
            if self._left < 0:
                return False
        self._skip = place - len(data)
        return True
