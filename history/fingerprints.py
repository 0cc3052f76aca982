"""Which conversation is this? A chain of keyed hashes answers it for clients that resend everything each time.

The chain runs over what both sides of the wire have in common: trimmed texts, tools by name and parsed arguments,
images by hash, results by call id. It leaves out what clients move or change between turns: reasoning, block ids, cache
markers, system reminders, instructions in mid-conversation, the texts of results. It is keyed (nobody can test a guess
against a copy of the database), taken before redaction, and scoped to one API key (or one owner), so two people who say
the same never meet.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Sequence
from typing import Any

from django.conf import settings

from history.context import SYSTEM_CHANNEL
from history.entries import Entry, Media, ModelInput, ModelOutput, Part, Text, ToolRequest, ToolResults

SIZE = 16
START = b""

_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)


def scope_of(*, api_key_id: int | None, owner_id: int) -> str:
    return f"owner:{owner_id}" if api_key_id is None else f"key:{api_key_id}"


def fingerprint(entry: Entry, *, after: bytes, scope: str) -> bytes:
    """The chain one entry further; an entry that says nothing to the other side leaves it as it is."""
    essence = essence_of(entry)
    if essence is None:
        return after
    said = json.dumps([scope, essence], ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, after.ljust(SIZE, b"\0") + said, "sha256")[:SIZE]


def of_nothing_known(session: object, seq: int) -> bytes:
    """In place of the chain over an entry whose texts are gone: nothing that anybody says leads to it."""
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, f"gone|{session}|{seq}".encode(), "sha256")[:SIZE]


def essence_of(entry: Entry) -> list[Any] | None:
    if isinstance(entry, ModelInput):
        if entry.channel == SYSTEM_CHANNEL:
            return None
        said: list[Any] = [_words(entry.parts), _images(entry)]
        return ["in", *said] if any(said) else None
    if isinstance(entry, ModelOutput):
        said = [_words(entry.parts), [_asked(request) for request in entry.tool_requests]]
        return ["out", *said] if any(said) else None
    if isinstance(entry, ToolResults):
        return ["results", sorted(result.call_id for result in entry.results)]
    return None


def _words(parts: Sequence[Part]) -> str:
    """The texts without reminders, which clients put before, after or between what was said."""
    trimmed = (_trimmed(part.text) for part in parts if isinstance(part, Text))
    return "\n\n".join(filter(None, trimmed))


def _trimmed(text: str) -> str:
    return (_REMINDER.sub("", text) if "<system-reminder>" in text else text).strip()


def _images(entry: ModelInput) -> list[str]:
    return [part.sha256 or part.url for part in entry.parts if isinstance(part, Media)]


def _asked(request: ToolRequest) -> list[str]:
    try:
        return [request.name, json.dumps(json.loads(request.arguments or "{}"), sort_keys=True)]
    except (ValueError, RecursionError):  # cut off, or nested deeper than anybody reads
        return [request.name, request.arguments.strip()]
