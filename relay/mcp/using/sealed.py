"""Secrets of MCP servers in the database: encrypted with a key made of SECRET_KEY, so that a copy of it holds none."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings


def seal(secrets: Mapping[str, str]) -> str:
    return _cipher().encrypt(json.dumps(dict(secrets)).encode()).decode() if secrets else ""


def unseal(sealed: str) -> dict[str, str] | None:
    """None: they were sealed under another SECRET_KEY and have to be written again."""
    try:
        opened = json.loads(_cipher().decrypt(sealed.encode())) if sealed else {}
    except InvalidToken:
        return None
    return {str(name): str(value) for name, value in opened.items()}


def _cipher() -> Fernet:
    return Fernet(urlsafe_b64encode(sha256(b"parley mcp secrets\0" + settings.SECRET_KEY.encode()).digest()))
