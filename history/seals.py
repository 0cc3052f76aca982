"""What makes an alteration visible: every entry is hashed, and every hash is chained to the one before.

The salt lies with the body and goes when the body is dropped by policy: the digest that stays behind then proves
that something was there without letting anybody guess what.
"""

import json
import os
from hashlib import sha256


def new_salt() -> bytes:
    return os.urandom(16)


def digest_of(salt: bytes, body: str) -> bytes:
    return sha256(salt + body.encode()).digest()


def seal_of(previous: bytes, *, seq: int, parent: int, kind: str, digest: bytes) -> bytes:
    return sha256(b"%s|%d|%d|%s|%s" % (previous, seq, parent, kind.encode(), digest)).digest()


def audit_seal_of(previous: bytes, *fields: object) -> bytes:
    # As a JSON list, so that words cannot move from one field into the next unnoticed.
    written = json.dumps([None if field is None else str(field) for field in fields])
    return sha256(previous + written.encode()).digest()
