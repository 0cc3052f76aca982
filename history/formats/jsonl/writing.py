"""JSONL writer: sessions page by page, each blob once."""

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field

from django.db.models import Model, Q, QuerySet

from history.entries import JsonDict
from history.formats.base import Notes
from history.formats.jsonl import lines
from history.formats.jsonl.lines import HEADER, entry_line, line_of, sections, time_text
from history.models import Blob, Exchange, Message, Session, ToolCall
from history.models.seals import digest_of
from history.record.loading import pages_of
from history.text.lazy import gettext_noop as _

PAGE = 200
BLOB_PART = 6_000_000  # bytes of a blob in one line; divisible by three, so that no part needs to be filled up
KNOWN_BLOBS = 200_000  # beyond so many different ones, some are written a second time


@dataclass
class JsonlWriter:
    notes: Notes = field(default_factory=Notes)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("sessions", "entries", "exchanges"), 0))
    written: set[bytes] = field(default_factory=set)  # hashes of blobs

    def head(self) -> bytes:
        return line_of(HEADER)

    def session(self, session: Session, **also: object) -> Iterator[bytes]:
        """Everything about one session up to the version of its row. `also` is added to its last line."""
        yield line_of(lines.serialize_session(session))
        last, entries = None, 0
        rows = Message.objects.in_order(session).defer("content", "fingerprint")
        for page in pages_of(session, rows, most=PAGE):
            yield from self._entries(page)
            last, entries = page[-1], entries + len(page)
        if getattr(session, "has_exchanges", True):  # known from the query that read it, for many have none
            exchanges = Exchange.objects.filter(session=session)
            running = exchanges.filter(ended_at=None).count()
            self.notes("ignored", _("model calls that were still running"), where=str(session.pk), count=running)
            yield from self._exchanges(exchanges, session)
        if last is not None and last.seq < session.version:
            self.notes("lost", _("entries were removed during the export"), where=str(session.pk))
        seal = last.seal if last is not None and last.seq > session.trimmed_through else session.anchor_seal
        self.counts["sessions"] += 1
        self.counts["entries"] += entries
        yield line_of({
            "type": "session_end", "session": str(session.pk), "entries": entries,
            "version": max(last.seq if last else 0, session.trimmed_through), "seal": seal.hex(), **also,
        })  # fmt: skip

    def loose_exchanges(self, rows: QuerySet[Exchange]) -> Iterator[bytes]:
        yield from self._exchanges(rows.filter(session=None), None)

    def deleted(self, session_id: object, at: str) -> bytes:
        return line_of({"type": "deleted", "session": str(session_id), "at": at})

    def sections(self) -> Iterator[bytes]:
        for name, section in sections().items():
            for value in section.give():
                yield line_of({**value, "type": name})

    def end(self, **also: object) -> bytes:
        notes = [asdict(note) for note in self.notes.as_tuple()]
        return line_of({"type": "end", **self.counts, "notes": notes, **also})

    def _entries(self, page: Sequence[Message]) -> Iterator[bytes]:
        links = _links(Message.blobs.through, "message_id", [row.pk for row in page])
        # The texts of dropped entries are gone, so the rows of their calls cannot be built again.
        dropped = [row.pk for row in page if row.body is None]
        calls: dict[int, list[JsonDict]] = defaultdict(list)
        for call in ToolCall.objects.filter(message_id__in=dropped).order_by("index") if dropped else ():
            calls[call.message_id].append(lines.row_facts(call, lines.CALL_FACTS, lines.CALL_TIMES))
        for row in page:
            yield from self._blobs(links.get(row.pk, ()))
            facts = {"type": "entry", "seq": row.seq, "parent": row.parent_seq, "moved": row.moved_head}
            # `created_at` must stay the first name after `body`.
            facts |= {"created_at": time_text(row.created_at), "seal": row.seal.hex()}
            if row.body is None:
                left = {**lines.row_facts(row, lines.ROW_FACTS), "at": time_text(row.dropped_at)}
                left["calls"] = calls.get(row.pk, [])
                yield line_of({**facts, "digest": row.digest.hex(), "dropped": left})
                continue
            if digest_of(row.salt or b"", row.body) != row.digest:  # altered: the restored copy must show it, too
                facts["digest"] = row.digest.hex()
            yield entry_line(row.body, {**facts, "salt": (row.salt or b"").hex()})

    def _exchanges(self, rows: QuerySet[Exchange], session: Session | None) -> Iterator[bytes]:
        """The ended exchanges, a page at a time, each after the lines of its blobs."""
        ended = rows.exclude(ended_at=None).order_by("started_at", "pk").select_related("message", "owner", "api_key")
        ended, following = ended.defer("message__body", "message__content"), Q()
        while page := list(ended.filter(following)[:PAGE]):
            links = _links(Exchange.blobs.through, "exchange_id", [exchange.pk for exchange in page])
            for exchange in page:
                yield from self._blobs(links.get(exchange.pk, ()))
                yield line_of(lines.serialize_exchange(exchange, session))
            self.counts["exchanges"] += len(page)
            last = page[-1]
            following = Q(started_at__gt=last.started_at) | Q(started_at=last.started_at, pk__gt=last.pk)

    def _blobs(self, names: Iterable[str]) -> Iterator[bytes]:
        for name in sorted(names):
            key = bytes.fromhex(name)
            if key in self.written:
                continue
            if len(self.written) >= KNOWN_BLOBS:
                self.written.clear()
            self.written.add(key)
            for blob in Blob.objects.filter(pk=name):
                content = memoryview(blob.data)  # in several lines if it is large: all but the last have `more`
                for start in range(0, max(1, len(content)), BLOB_PART):
                    data = b64encode(content[start : start + BLOB_PART]).decode()
                    line = {"type": "blob", "sha256": name, "media_type": blob.media_type, "data": data}
                    yield line_of(line | ({"more": True} if start + BLOB_PART < len(content) else {}))


def _links(through: type[Model], name: str, ids: Sequence[object]) -> dict[object, list[str]]:
    links: dict[object, list[str]] = defaultdict(list)
    for pk, blob in through._default_manager.filter(**{f"{name}__in": ids}).values_list(name, "blob_id"):
        links[pk].append(blob)
    return links
