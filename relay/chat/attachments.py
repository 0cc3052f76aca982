"""Attachments of messages: checked and stored at upload, named by a signed note until the message is sent.

The note is part of the form: owner, hash, type, size and name of the file. So the server stores no upload state, a hash
that was guessed or copied opens nothing, and a file that is never sent is removed by the next purge.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core import signing
from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext as _

from history.entries import Media
from history.errors import HistoryOff
from history.record import recorder
from history.text.media_types import media_type_of
from relay.errors import AttachmentRefused
from relay.models import User

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


def attach(user: User, file: UploadedFile[bytes]) -> Attached:
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
    facts = {"sha256": sha256, "name": name, "media_type": media_type, "size": len(content)}
    note = signing.dumps(facts | {"user": user.pk}, salt=SALT)
    return Attached(name=name, media_type=media_type, size=len(content), note=note)


def parts_of(user: User, notes: Sequence[str]) -> tuple[Media, ...]:
    """What the notes of a form name, as parts of a message; each file once. Raises `AttachmentRefused`."""
    read = [_read(user, note) for note in notes if note]
    media = tuple({(part.sha256, part.name): part for part in read}.values())
    if len(media) > settings.PARLEY_ATTACHMENTS_PER_MESSAGE:
        raise AttachmentRefused("too_many")
    there = recorder.renew_blobs({part.sha256 for part in media}) if media else frozenset()
    for part in media:
        if part.sha256 not in there:
            raise AttachmentRefused("gone", name=part.name)
    return media


def _read(user: User, note: str) -> Media:
    try:
        facts = signing.loads(note, salt=SALT, max_age=LIFE)
    except signing.SignatureExpired as error:
        raise AttachmentRefused("gone") from error
    except signing.BadSignature as error:
        raise AttachmentRefused("not_ours") from error
    if facts.pop("user") != user.pk:
        raise AttachmentRefused("not_ours", name=facts["name"])
    return Media(**facts)


def refusal_text(error: AttachmentRefused) -> str:
    most = settings.PARLEY_ATTACHMENTS_PER_MESSAGE
    words = {
        "empty": _("This file is empty."),
        "too_large": _("Too large: a file can have up to %(size)s MB.") % {"size": settings.PARLEY_ATTACHMENT_MB},
        "kind": _("Only pictures (PNG, JPEG, GIF, WebP), PDF and UTF-8 text files can be attached."),
        "too_many": _("Too many files: a message can have up to %(most)s.") % {"most": most},
        "not_ours": _("This attachment is unknown. Attach the file again."),
        "gone": _("This attachment is no longer available. Attach the file again."),
        "off": _("History is off. Files cannot be stored."),
    }
    return words[error.reason]


def most_bytes() -> int:
    return int(settings.PARLEY_ATTACHMENT_MB * 1024 * 1024)


def tidy(name: str) -> str:
    """The last part of a name, without what no screen can show."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    plain = "".join(letter for letter in last if unicodedata.category(letter)[0] != "C").strip()
    return plain[-NAME_CHARS:] or _("attachment")
