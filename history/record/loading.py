"""Reading of entries from rows: bodies are unpacked and long texts fetched from their blobs, a page at a time."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import QuerySet

from history.context.messages import dropped_entry
from history.db.packing import Blobs, blobs_in, unpack
from history.db.parameters import among
from history.db.prepared import prepared
from history.entries import Entry, Node
from history.models import Blob, Message, Session

MAX_PAGE = 500
PAGE_CHARS = 4_000_000  # of texts, about, that are in memory at a time


def entries_of(messages: Sequence[Message]) -> list[Entry]:
    blobs = _blobs(message.body for message in messages)
    return [_entry(row.kind, row.created_at, row.body, blobs) for row in messages]


def ledger_of(session: Session, *, after: int = 0, limit: int = MAX_PAGE) -> list[Message]:
    """All entries in the order of writing, on every branch."""
    return list(Message.objects.of(session).filter(seq__gt=after).order_by("seq")[: max(1, min(limit, MAX_PAGE))])


def pages_of(session: Session, rows: QuerySet[Message], *, most: int) -> Iterator[list[Message]]:
    """These rows of a session up to its version, oldest first; at most so many, fewer where texts are long."""
    last, size = 0, most // 5
    while page := list(rows.filter(seq__gt=last)[:size]):
        yield page
        last = page[-1].seq
        if last >= session.version:
            return
        mean = sum(len(row.body or "") + row.content_chars for row in page) // len(page) + 1
        size = max(1, min(most, PAGE_CHARS // mean))


def read_nodes(where: str, parameters: Sequence[Any]) -> list[Node]:
    sql = f"SELECT seq, parent_seq, body, kind, created_at FROM history_message WHERE {where}"  # noqa: S608
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        found = cursor.fetchall()
    blobs = _blobs(body for _, _, body, _, _ in found)
    return [Node(seq=seq, parent=up, entry=_entry(kind, at, body, blobs)) for seq, up, body, kind, at in found]


def bytes_of(sha256: str) -> bytes:
    """The bytes of an attachment; raises LookupError where there are none."""
    content = Blob.objects.filter(pk=sha256).values_list("data", flat=True).first()
    if content is None:
        raise LookupError(sha256)
    return bytes(content)


def _entry(kind: str, at: Any, body: str | None, blobs: Blobs) -> Entry:
    """`at` may be as the driver returns it: SQLite has texts instead of times."""
    if body is not None:
        return unpack(body, blobs)
    moment = at if isinstance(at, datetime) else datetime.fromisoformat(at)
    return dropped_entry(kind, at=moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _blobs(bodies: Iterable[str | None]) -> Blobs:
    names = {name for body in bodies if body is not None for name in blobs_in(body)}
    return dict(_blobs_named(sorted(names))) if names else {}


@prepared
def _blobs_named(names: list[str]) -> QuerySet[Blob, tuple[str, bytes | memoryview]]:
    return Blob.objects.filter(pk__in=among(names, kind=str)).values_list("sha256", "data")
