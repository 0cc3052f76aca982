"""Files that people attach to a message: looked at when they come, stored, and named by a signed note until it is sent.

The note travels with the form: who stored the file, what it is and how it is called. So nothing of it is kept on our
side, a hash that somebody has guessed or copied opens nothing, and what is never sent goes with the next purge.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext as _

from history.entries import Media
from history.errors import HistoryOff
from history.record import recorder
from history.text.media_types import IMAGES, media_type_of
from relay.errors import AttachmentRefused

SALT = "relay.chat.attachments"
LIFE = timedelta(days=1)
NAME_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A stored file, and the note that names it. `problem` instead: why it was not taken."""

    name: str
    media_type: str = ""
    size: int = 0
    note: str = ""
    problem: str = ""

    @property
    def is_image(self) -> bool:
        return self.media_type in IMAGES


def attach(person: Any, file: UploadedFile[bytes]) -> Attached:
    """Look at a file and store it. Raises `AttachmentRefused`."""
    name = tidy(file.name or "")
    if not file.size:
        raise AttachmentRefused("empty", name=name)
    if file.size > most_bytes():
        raise AttachmentRefused("too_large", name=name)
    content = file.read()
    media_type = media_type_of(content, name=name)
    if media_type is None:
        raise AttachmentRefused("kind", name=name)
    try:
        sha256 = recorder.store_blob(content, media_type=media_type)
    except HistoryOff as error:
        raise AttachmentRefused("off", name=name) from error
    told = {"sha256": sha256, "name": name, "media_type": media_type, "size": len(content)}
    note = signing.dumps(told | {"user": person.pk}, salt=SALT)
    return Attached(name=name, media_type=media_type, size=len(content), note=note)


def parts_of(person: Any, notes: Sequence[str]) -> tuple[Media, ...]:
    """What the notes of a form name, as parts of a message; each file once. Raises `AttachmentRefused`."""
    read = [_read(person, note) for note in notes if note]
    media = tuple({(part.sha256, part.name): part for part in read}.values())
    if len(media) > settings.PARLEY_ATTACHMENTS_PER_MESSAGE:
        raise AttachmentRefused("too_many")
    there = recorder.keep_blobs({part.sha256 for part in media}) if media else frozenset()
    for part in media:
        if part.sha256 not in there:
            raise AttachmentRefused("gone", name=part.name)
    return media


def _read(person: Any, note: str) -> Media:
    try:
        told = signing.loads(note, salt=SALT, max_age=LIFE)
    except signing.SignatureExpired as error:
        raise AttachmentRefused("gone") from error
    except signing.BadSignature as error:
        raise AttachmentRefused("not_ours") from error
    if told.pop("user") != person.pk:
        raise AttachmentRefused("not_ours", name=told["name"])
    return Media(**told)


def told(error: AttachmentRefused) -> str:
    """What went wrong, and what to do about it."""
    most = settings.PARLEY_ATTACHMENTS_PER_MESSAGE
    words = {
        "empty": _("This file is empty."),
        "too_large": _("Too large: a file may have %(size)s MB.") % {"size": settings.PARLEY_ATTACHMENT_MB},
        "kind": _("Only pictures (PNG, JPEG, GIF, WebP), PDF and text files in UTF-8 can be attached."),
        "too_many": _("Too many files: a message takes %(most)s.") % {"most": most},
        "not_ours": _("This attachment was not stored here. Attach the file again."),
        "gone": _("This attachment is not there any more. Attach the file again."),
        "off": _("History is off, so nothing can be stored."),
    }
    return words[error.reason]


def most_bytes() -> int:
    return int(settings.PARLEY_ATTACHMENT_MB * 1024 * 1024)


def tidy(name: str) -> str:
    """The last part of a name, without what no screen can show."""
    plain = "".join(_printable(name.replace("\\", "/").rsplit("/", 1)[-1])).strip()
    return plain[-NAME_CHARS:] or _("attachment")


def _printable(text: str) -> Iterable[str]:
    return (letter for letter in text if unicodedata.category(letter)[0] != "C")
