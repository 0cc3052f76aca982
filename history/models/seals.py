"""Seals: salted hashes of entries, chained so that alterations are detected.

The salt is stored with the body and removed when the body is dropped by policy. The digest that remains proves that
there was an entry, but its text cannot be guessed from it.
"""

import hmac
import json
import os
from hashlib import sha256
from uuid import UUID

from django.conf import settings


def new_salt() -> bytes:
    return os.urandom(16)


def digest_of(salt: bytes, body: str) -> bytes:
    return sha256(salt + body.encode()).digest()


def seal_of(previous: bytes, *, seq: int, parent: int, kind: str, digest: bytes) -> bytes:
    return sha256(b"%s|%d|%d|%s|%s" % (previous, seq, parent, kind.encode(), digest)).digest()


def title_mark_of(session_id: UUID, title: str) -> bytes:
    """A keyed hash that recognises a title. An erased title cannot be guessed from it."""
    if not title:
        return b""
    message = b"title|" + session_id.bytes + title.encode("utf-8", "surrogatepass")
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, message, "sha256")[:16]


def audit_seal_of(previous: bytes, *fields: object) -> bytes:
    # A JSON list, so that moving text from one field to the next changes the seal.
    written = json.dumps([None if field is None else str(field) for field in fields])
    return sha256(previous + written.encode()).digest()
