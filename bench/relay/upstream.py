"""The mock upstream of the relay's bench: the least HTTP that will do, so that it is never what is measured.

A request says in its body what it wants: `"stream":true` a burst of 64 events, with `"paced"` one every 50 ms, else one
whole reply. `python -m bench.relay.upstream PORT`.
"""

from __future__ import annotations

import asyncio
import re
import sys

TOKENS = 64
PACE_SECONDS = 0.05
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def _event(text: str, **more: str) -> bytes:
    fields = "".join(f',"{name}":{value}' for name, value in more.items())
    choice = f'{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":null}}'
    body = (
        f'{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{choice}]{fields}}}'
    )
    return f"data: {body}\n\n".encode()


EVENTS = [_event(f"word{number} ") for number in range(TOKENS)]
START = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
LAST = (
    START + b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' + START + b'"choices":[],'
    b'"usage":{"prompt_tokens":12,"completion_tokens":64,"total_tokens":76}}\n\ndata: [DONE]\n\n'
)
TEXT = "".join(f"word{number} " for number in range(TOKENS))
WHOLE = (
    f'{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":'
    f'{{"role":"assistant","content":"{TEXT}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":12,'
    f'"completion_tokens":64,"total_tokens":76}}}}'
).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(WHOLE)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


CHUNKS = [_chunk(event) for event in EVENTS]
END = _chunk(LAST) + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.talking: asyncio.Task[None] | None = None
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return
        length = int((_LENGTH.search(self.received, 0, end) or [0, 0])[1])
        if len(self.received) < end + 4 + length:
            return
        body = bytes(self.received[end + 4 : end + 4 + length])
        del self.received[: end + 4 + length]
        self.answer(body)

    def answer(self, body: bytes) -> None:
        if b'"paced"' in body[-40:]:
            self.transport.write(STREAM_HEAD)
            self.talking = asyncio.ensure_future(self.pace())
        elif b'"stream":true' in body[-40:]:
            self.transport.write(STREAM_HEAD)
            self.talking = asyncio.ensure_future(self.burst())
        else:
            self.transport.write(HEAD + WHOLE)

    async def burst(self) -> None:
        for chunk in CHUNKS:
            self.transport.write(chunk)
            await asyncio.sleep(0)
        self.transport.write(END)

    async def pace(self) -> None:
        for chunk in CHUNKS[:20]:
            self.transport.write(chunk)
            await asyncio.sleep(PACE_SECONDS)
        self.transport.write(END)


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
