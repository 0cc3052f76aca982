"""The vendor of these faults: it answers a question with words that belong to it, slowly, and breaks off when told to.

`question 17` is answered by `17.0 17.1 17.2 …`; with `cut 5` in it, the connection ends after five words. With
`large 5` or `bomb 5` the reply has five megabytes, the second one packed; with `line 5` it is one line without an end.
"""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = 20


def words_of(number: int, count: int = WORDS) -> str:
    return "".join(f"{number}.{place} " for place in range(count))


class Vendor(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pause = 0.01

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"])).decode()
        number = int((re.search(r"question (\d+)", asked) or [0, 0])[1])
        cut = re.search(r"cut (\d+)", asked)
        if line := re.search(r"line (\d+)", asked):
            self._send_line(int(line[1]))
            return
        if large := re.search(r"(large|bomb) (\d+)", asked):
            self._send_large(int(large[2]), is_packed=large[1] == "bomb")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            self._talk(number, int(cut[1]) if cut else None)
        except OSError:
            self.close_connection = True

    def _send_large(self, megabytes: int, *, is_packed: bool) -> None:
        """A reply of so many megabytes, as it is or packed to very few."""
        choice = {"index": 0, "delta": {"content": "x" * 1024 * 1024}, "finish_reason": None}
        event = b"data: " + json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode() + b"\n\n"
        packing = zlib.compressobj(wbits=31)
        packed = [*(packing.compress(event) for _ in range(megabytes)), packing.flush()] if is_packed else []
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(sum(map(len, packed)) or megabytes * len(event)))
        if is_packed:
            self.send_header("content-encoding", "gzip")
        self.end_headers()
        for piece in packed or (event for _ in range(megabytes)):
            self.wfile.write(piece)

    def _send_line(self, megabytes: int) -> None:
        """One line of a stream that never ends, and then the connection does."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self._chunk(b'data: {"id": "c", "choices": [{"index": 0, "delta": {"content": "')
        for _ in range(megabytes):
            self._chunk(b"x" * 1024 * 1024)
        self.close_connection = True

    def _talk(self, number: int, cut: int | None) -> None:
        for place in range(WORDS if cut is None else cut):
            self._say({"choices": [{"index": 0, "delta": {"content": f"{number}.{place} "}, "finish_reason": None}]})
            time.sleep(self.pause)
        if cut is not None:
            self.close_connection = True
            return
        self._say({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _say(self, event: dict[str, object]) -> None:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        self._chunk(b"data: " + json.dumps(head | event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Silent."""


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A worker that is killed breaks its connections: that is what is played here."""


@contextmanager
def vendor() -> Iterator[str]:
    server = Server(("127.0.0.1", 0), Vendor)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
