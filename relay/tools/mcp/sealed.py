"""Secrets of MCP servers in the database: encrypted with a key made of SECRET_KEY, so that a copy of it holds none.

What encrypts them is loaded where there are any: it takes several megabytes of every process.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


def seal(secrets: Mapping[str, str]) -> str:
    return _cipher().encrypt(json.dumps(dict(secrets)).encode()).decode() if secrets else ""


def unseal(sealed: str) -> dict[str, str] | None:
    """None: they were sealed under another SECRET_KEY and have to be written again."""
    if not sealed:
        return {}
    from cryptography.fernet import InvalidToken

    try:
        opened = json.loads(_cipher().decrypt(sealed.encode()))
    except InvalidToken:
        return None
    return {str(name): str(value) for name, value in opened.items()}


def _cipher() -> Fernet:
    from cryptography.fernet import Fernet

    return Fernet(urlsafe_b64encode(sha256(b"parley mcp secrets\0" + settings.SECRET_KEY.encode()).digest()))
