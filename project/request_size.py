"""No request is larger than the largest thing that anybody may send here.

Django's ASGI handler writes a body to the disk before anything of ours sees it, however long it is; so it is measured
on the way. A body that says how long it is gets its answer before a byte is read.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from history.api.errors import failure

SLACK = 1024 * 1024  # what forms put around files


class TooLong(Exception):
    pass


def largest() -> int:
    attached = settings.PARLEY_ATTACHMENT_MB * settings.PARLEY_ATTACHMENTS_PER_MESSAGE
    return max(settings.PARLEY_IMPORT_MB, attached) * 1024 * 1024 + SLACK


def limited(application: Any) -> Any:
    async def answer(scope: Any, receive: Any, send: Any) -> None:
        measured = _Measured(receive, most=largest())
        if _announced(scope) > measured.most:
            await _refuse(scope, send)
            return
        try:
            await application(scope, measured, send)
        except TooLong:
            await _refuse(scope, send)

    return answer


class _Measured:
    def __init__(self, receive: Any, *, most: int) -> None:
        self.receive, self.most, self.read = receive, most, 0

    async def __call__(self) -> Any:
        message = await self.receive()
        self.read += len(message.get("body", b""))
        if self.read > self.most:
            raise TooLong
        return message


def _announced(scope: Any) -> int:
    length = dict(scope.get("headers", ())).get(b"content-length", b"0")
    return int(length) if length.isdigit() else 0


async def _refuse(scope: Any, send: Any) -> None:
    """Under /api/ in the form that errors have there."""
    kind, body = b"text/plain; charset=utf-8", b"That is more than this server takes at once.\n"
    if scope.get("path", "").startswith("/api/"):
        kind, body = b"application/json", failure(413).content
    headers = [(b"content-type", kind), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
