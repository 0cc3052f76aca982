"""Reading of entries from rows: bodies are unpacked and long texts fetched from their blobs, a page at a time."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from history.context.messages import dropped_entry
from history.db.packing import blobs_in, unpack
from history.entries import Entry, Node
from history.models import Blob, Message, Session

MAX_PAGE = 500


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    """The entries of these rows."""
    blobs = _blobs(message.body for message in messages)
    return [
        dropped_entry(message.kind, at=message.created_at) if message.body is None else unpack(message.body, blobs)
        for message in messages
    ]


def nodes_of(messages: Sequence[Message]) -> list[Node]:
    pairs = zip(messages, entries_of(messages), strict=True)
    return [Node(seq=message.seq, parent=message.parent_seq, entry=entry) for message, entry in pairs]


def ledger_of(session: Session, *, after: int = 0, limit: int = MAX_PAGE) -> list[Message]:
    """All entries in the order of writing, on every branch."""
    return list(Message.objects.of(session).filter(seq__gt=after).order_by("seq")[: max(1, min(limit, MAX_PAGE))])


def read_nodes(where: str, parameters: Sequence[Any]) -> list[Node]:
    """Entries with their numbers, without the other columns."""
    sql = f"SELECT seq, parent_seq, body, kind, created_at FROM history_message WHERE {where}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchall()
    blobs = _blobs(body for _, _, body, _, _ in found)
    return [
        Node(seq=seq, parent=parent, entry=_dropped(kind, at) if body is None else unpack(body, blobs))
        for seq, parent, body, kind, at in found
    ]


def _dropped(kind: str, at: Any) -> Entry:
    """`at` is as the driver returns it: SQLite has texts instead of times."""
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    return dropped_entry(kind, at=moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _blobs(bodies: Iterable[str | None]) -> dict[str, bytes | memoryview]:
    """All blobs that these bodies refer to, in one query."""
    names = {name for body in bodies if body is not None for name in blobs_in(body)}
    return dict(Blob.objects.filter(pk__in=names).values_list("sha256", "data")) if names else {}
