"""Attachments: the bytes of a Media part, for users who may read its entry."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import QuerySet

from history.db.packing import parts_of
from history.entries import Media
from history.models import Blob, Message
from history.text.media_types import media_type_of
from history.transcripts.previews import entries_in_brief

LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class Attachment:
    """`media_type` is detected from the bytes, not from the claimed type; None if unknown."""

    name: str
    media_type: str | None
    content: bytes


def find_attachment(messages: QuerySet[Message], sha256: str) -> Attachment | None:
    """The attachment of this hash, if one of these entries names it as one."""
    linked = messages.filter(blobs=sha256).order_by("seq")[:LOOKED_AT]
    entries = entries_in_brief(list(linked))
    media = next((part for entry in entries for part in parts_of(entry) if _is(part, sha256)), None)
    if not isinstance(media, Media):
        return None
    blob = Blob.objects.filter(pk=sha256).first()
    if blob is None:
        return None
    content = bytes(blob.data)
    return Attachment(media.name, media_type_of(content, name=media.name), content)


def _is(part: object, sha256: str) -> bool:
    return isinstance(part, Media) and part.sha256 == sha256
