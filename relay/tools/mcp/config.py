"""Settings of an MCP server, its errors, and the encryption of its secrets."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from django.conf import settings


@dataclass(frozen=True, slots=True, kw_only=True)
class McpSettings:
    """A program here (`command`), or a server at `url`. `environment` and `headers` are secrets: never shown."""

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    seconds: float = 30.0


class McpFailure(Exception):
    """The server could not be used; the text says why to staff and to models, without its secrets."""


class McpGone(McpFailure):
    """The server did not answer, or ended during a call: the next call needs a new connection."""


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
