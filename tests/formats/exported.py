"""An export and what becomes of it, in a test: all lines of it, an empty record, and the record laid down again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection

from history.formats import jsonl
from history.models import ApiKey, Blob, Exchange, Message, SearchRow, Session, ToolCall


def everything(*, sections: bool = False) -> bytes:
    writer = jsonl.Writer()
    rows = Session.objects.select_related("owner", "api_key").order_by("pk")
    pieces = [writer.head(), *(line for session in rows for line in writer.session(session))]
    return b"".join([*pieces, *(writer.sections() if sections else ()), writer.end()])


def wipe() -> None:
    """As if the house were new, but for its people."""
    for model in (Message.blobs.through, Exchange.blobs.through):
        model._default_manager.all()._raw_delete(connection.alias)
    Session.objects.update(parent=None, forked_from=None)
    for rows in (SearchRow, ToolCall, Exchange, Message, Session, Blob, ApiKey):
        rows._default_manager.all().delete()


def restored(file: bytes | Iterable[bytes], **how: Any) -> list[jsonl.Restored]:
    lines = file.splitlines(keepends=True) if isinstance(file, bytes) else file
    return list(jsonl.restore(lines, **how))
