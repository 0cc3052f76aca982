"""What makes an alteration visible: every entry is hashed, and every hash is chained to the one before.

The salt lies with the body and goes when the body is dropped by policy: the digest that stays behind then proves
that something was there without letting anybody guess what.
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
    """What the record keeps of a title to recognise it. Keyed, so that an erased title cannot be guessed from it."""
    if not title:
        return b""
    said = b"title|" + session_id.bytes + title.encode("utf-8", "surrogatepass")
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, said, "sha256")[:16]


def begin_seal_of(session_id: UUID, *, owner_id: int, api_key_id: int | None, source: str, given_title: bytes) -> bytes:
    """The facts of a session that never change after it began."""
    return audit_seal_of(b"begin", session_id, owner_id, api_key_id, source, given_title.hex())


def audit_seal_of(previous: bytes, *fields: object) -> bytes:
    # As a JSON list, so that words cannot move from one field into the next unnoticed.
    written = json.dumps([None if field is None else str(field) for field in fields])
    return sha256(previous + written.encode()).digest()
