"""A vendor on loopback for subscription logins, and a proxy that lets nothing leave this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL_OF_CODEX = "gpt-5-codex"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived. A proxy sees the host and port of a CONNECT as its path."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes = b""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Played

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.command, self.path, headers, body))
        status, sent, reply = self.server.reply(self.path.partition("?")[0], body)
        self.send_response(status)
        for name, value in sent.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(reply)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(reply)
        self.close_connection = True

    do_GET = do_POST = do_HEAD = do_PUT = do_CONNECT = do_DELETE = do_PATCH = handle_any  # noqa: N815

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""


class Played(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        raise NotImplementedError


class ClosedProxy(Played):
    """Refuses every connection, and remembers the hosts that a client wanted."""

    @property
    def hosts(self) -> set[str]:
        return {one.path for one in self.seen}

    def reply(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        return 403, {}, b""


class Vendor(Played):
    """Answers the calls of subscribers; with `is_refusing`, as a vendor whose token has expired."""

    is_refusing = False

    def reply(self, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.is_refusing:
            error = {"type": "error", "error": {"type": "authentication_error", "message": "OAuth token has expired"}}
            return 401, {"content-type": "application/json"}, json.dumps(error).encode()
        if path.endswith("/models"):
            return 200, {"content-type": "application/json"}, b'{"models": []}'
        if path.endswith("/responses"):
            return 200, _STREAM | {"x-codex-primary-used-percent": "12"}, _events(_responses_events())
        return 200, _STREAM | {"anthropic-ratelimit-unified-5h-utilization": "0.42"}, _events(_messages_events(body))


_STREAM = {"content-type": "text/event-stream"}


def _events(events: list[dict[str, Any]]) -> bytes:
    return b"".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in events)


def _messages_events(body: bytes) -> list[dict[str, Any]]:
    model = json.loads(body or b"{}").get("model", "")
    usage = {"input_tokens": 1000, "output_tokens": 1}
    message = {"id": "msg_played", "type": "message", "role": "assistant", "model": model, "content": []}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Played hello."}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 100},
        },
        {"type": "message_stop"},
    ]


def _responses_events() -> list[dict[str, Any]]:
    content = {"type": "output_text", "text": "Played hello.", "annotations": []}
    item = {"type": "message", "id": "msg_played", "role": "assistant", "status": "completed", "content": [content]}
    response = {"id": "resp_played", "object": "response", "model": MODEL_OF_CODEX, "output": []}
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 100,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1100,
    }
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Played hello."},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {
            "type": "response.completed",
            "response": {**response, "status": "completed", "output": [item], "usage": usage},
        },
    ]


@contextmanager
def serve(server: Played) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
