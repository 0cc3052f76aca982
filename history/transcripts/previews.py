"""What users may see of entries and calls: previews of long texts, attachments, facts of relayed calls.

The database cuts long texts. They are made printable: NUL and lone surrogates, which the record keeps and no page can
show, become U+FFFD. That leaves NUL free to mark where a text was cut.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import BinaryField, QuerySet
from django.db.models.functions import Substr
from django.utils.translation import gettext as _

from history.context.messages import dropped_entry
from history.db.packing import blobs_in, clean, clean_deep, dump, media_of, unpack
from history.db.parameters import among
from history.db.prepared import prepared
from history.entries import Entry, ModelOutput, ToolsOffered
from history.models import Blob, Exchange, Message, Session
from history.text.media_types import media_type_of

BLOB_BYTES = 80_000
LOOKED_AT = 20
MISSING = "\ufffd".encode()  # `verify` reports missing blobs
_CUT = "\0"


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of a text. `chars` or `bytes` is the whole length if there is more."""

    text: str
    chars: int = 0
    bytes: int = 0

    @property
    def is_cut(self) -> bool:
        return bool(self.chars or self.bytes)


def preview(text: str, limit: int) -> Preview:
    """At most `limit` characters of a text from `entries_in_brief`."""
    head, cut, size = text.partition(_CUT)
    if cut:
        return Preview(head[:limit], bytes=int(size.split("\n", 1)[0]))
    return Preview(text[:limit], chars=len(text)) if len(text) > limit else Preview(text)


def entries_in_brief(messages: Sequence[Message]) -> list[Entry]:
    """Like `selectors.entries_of`, but bounded: meant for `preview`, not for a model."""
    names = {name for message in messages if message.body is not None for name in blobs_in(message.body)}
    starts = _starts(names) if names else {}
    return [_entry(message, starts) for message in messages]


def _entry(message: Message, starts: Mapping[str, bytes]) -> Entry:
    if message.body is None:
        return dropped_entry(message.kind, at=message.created_at)
    if message.kind == ToolsOffered.kind:  # cut JSON is useless; `content` has the names
        return ToolsOffered(at=message.created_at)
    body = message.body
    return unpack(dump(clean_deep(json.loads(body))) if "\\u" in body else body, starts)


def _starts(names: set[str]) -> dict[str, bytes]:
    found = dict.fromkeys(names, MISSING)
    for name, start, size in _read_starts(sorted(names)):
        text = clean(bytes(start).decode("utf-8", "ignore"))
        found[name] = (f"{text}{_CUT}{size}" if size > len(start) else text).encode()
    return found


@prepared
def _read_starts(names: list[str]) -> QuerySet[Blob, tuple[str, bytes, int]]:
    start = Substr("data", 1, BLOB_BYTES, output_field=BinaryField())
    return Blob.objects.filter(pk__in=among(names, kind=str)).values_list("sha256", start, "size")


@dataclass(frozen=True, slots=True)
class Attachment:
    """`media_type` is detected from the bytes, not from the claimed type; None if unknown."""

    name: str
    media_type: str | None
    content: bytes


def find_attachment(messages: QuerySet[Message], sha256: str) -> Attachment | None:
    """The attachment with this hash, if one of these entries names it."""
    entries = entries_in_brief(list(messages.filter(blobs=sha256).order_by("seq")[:LOOKED_AT]))
    named = next((one.name for entry in entries for one in media_of(entry) if one.sha256 == sha256), None)
    blob = Blob.objects.filter(pk=sha256).first() if named is not None else None
    if named is None or blob is None:
        return None
    content = bytes(blob.data)
    return Attachment(named, media_type_of(content, name=named), content)


FACTS = (
    *("client", "path", "helper", "streamed", "translated_to", "not_carried", "removed_session_field"),
    *("answers", "changed_results", "unread_reply", "skipped_events", "problem"),
    *("request_bytes", "reply_bytes", "lost_bytes"),
)
TRIES = ("upstream", "retried")
MODE = "no_replies"


def facts_of(exchange: Exchange, *, may_read: bool = False) -> dict[str, Any]:
    """Facts that are known. `upstream`: tried providers; `retried`: earlier tries of the client."""
    found = {name: exchange.metadata[name] for name in FACTS if name in exchange.metadata}
    for name in TRIES:
        tries = exchange.metadata.get(name, ())
        if known := [{key: one[key] for key in one if may_read or key != "error"} for one in tries]:
            found[name] = known
    return found


def is_unrecorded(entry: object) -> bool:
    return isinstance(entry, ModelOutput) and entry.metadata.get("recording") == MODE


def unrecorded_text() -> str:
    return _("The reply was not stored. This key records requests only.")


def find_unrecorded_answer(session: Session) -> ModelOutput | None:
    """The unrecorded answer to the last entry; None if there is none, or it was recorded."""
    if session.source != Session.Source.RELAY:
        return None
    calls = Exchange.objects.filter(session=session).filter(after=session.head, message=None, end_reason="done")
    for call in calls.order_by("-started_at", "-id")[:5]:
        facts = call.metadata
        has_reply = facts.get("reply_bytes") and not facts.get("helper") and not facts.get("unread_reply")
        if has_reply and call.ended_at is not None:
            return ModelOutput(at=call.ended_at, model=call.model, metadata={"recording": MODE})
    return None
