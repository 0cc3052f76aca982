"""Which conversation is this? A chain of keyed hashes answers it for clients that resend everything each time.

The chain runs over what both sides of the wire have in common: trimmed texts, tools by name and parsed arguments (by
name and id where the id is one of Anthropic's), images by hash, results by call id. It leaves out what clients move or
change between turns: reasoning, block ids, cache markers, system reminders, instructions in mid-conversation, the texts
of results, how a number is written, into how many pieces an answer is cut. Pictures of a model and parts that nobody
here knows count only where nothing else was said: not every client sends them back. It is keyed (nobody can test a
guess against a copy of the database), taken before redaction, and scoped to one API key (or one owner), so two people
who say the same never meet.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings

from history.context import SYSTEM_CHANNEL
from history.entries import (
    Entry,
    Media,
    ModelInput,
    ModelOutput,
    OtherPart,
    Part,
    Text,
    ToolRequest,
    ToolResults,
    thaw,
)

SIZE = 16
START = b""
SLICE = 1024 * 1024

_json = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode

# Of a part that nobody here knows: what moves or is added on the way.
_MOVING = frozenset({"cache_control", "id", "status"})
# Some models think aloud, and some clients take that out of what they send back.
_THINKING = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
# No two calls have the same, and Claude Code sends some calls back with other arguments than it was given: without the
# way into the folder where it is anyway, without white space at the ends of lines.
_ISSUED = re.compile(r"toolu_\w{12,}")


def scope_of(*, api_key_id: int | None, owner_id: int) -> str:
    return f"owner:{owner_id}" if api_key_id is None else f"key:{api_key_id}"


def fingerprint(entry: Entry, *, after: bytes, scope: str) -> bytes:
    """The chain one entry further; an entry that says nothing to the other side leaves it as it is."""
    return _further(essence_of(entry), after=after, scope=scope)


def is_fingerprint(mark: bytes, entry: Entry, *, after: bytes, scope: str) -> bool:
    """Whether the chain goes on with this mark: as it is made now, or as earlier versions made it."""
    if mark == fingerprint(entry, after=after, scope=scope):
        return True
    return any(mark == _further(essence, after=after, scope=scope) for essence in _essences_before(entry))


def _further(essence: list[Any] | None, *, after: bytes, scope: str) -> bytes:
    if essence is None:
        return after
    mark = hmac.new(settings.PARLEY_FINGERPRINT_KEY, after.ljust(SIZE, b"\0"), "sha256")
    said = _json([scope, essence])
    # In slices: one more copy of a text of many megabytes would be made for nothing.
    for start in range(0, len(said), SLICE):
        mark.update(said[start : start + SLICE].encode())
    return mark.digest()[:SIZE]


def of_nothing_known(session: object, seq: int) -> bytes:
    """In place of the chain over an entry whose texts are gone: nothing that anybody says leads to it."""
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, f"gone|{session}|{seq}".encode(), "sha256")[:SIZE]


def essence_of(entry: Entry) -> list[Any] | None:
    if isinstance(entry, ModelInput):
        if entry.channel == SYSTEM_CHANNEL:
            return None
        said: list[Any] = [_words(entry.parts), _images(entry)]
        return ["in", *said] if any(said) else _wordless("in", entry.parts)
    if isinstance(entry, ModelOutput):
        said = [_without_thinking(_answered(entry.parts)), [_asked(request) for request in entry.tool_requests]]
        return ["out", *said] if any(said) else _wordless("out", entry.parts)
    if isinstance(entry, ToolResults):
        return ["results", sorted(result.call_id for result in entry.results)]
    return None


def _essences_before(entry: Entry) -> Iterator[list[Any] | None]:
    """As it was: with numbers as they were written, thoughts aloud and every call's arguments, with the pieces of an
    answer apart, and nothing where there were no words."""
    if isinstance(entry, ModelOutput):
        words = _words(entry.parts)
        said = [_without_thinking(words), [_with_arguments(request) for request in entry.tool_requests]]
        yield ["out", *said] if any(said) else _wordless("out", entry.parts)
        said = [words, [_asked_before(request) for request in entry.tool_requests]]
        yield ["out", *said] if any(said) else None
    elif isinstance(entry, ModelInput) and not _words(entry.parts) and not _images(entry):
        yield None


def _wordless(who: str, parts: Sequence[Part]) -> list[Any] | None:
    said = [_of_other(part) for part in parts if isinstance(part, (Media, OtherPart))]
    return [who, "", said] if said else None


def _of_other(part: Media | OtherPart) -> Any:
    if isinstance(part, Media):
        return part.sha256 or part.url or _kept(part.extra)
    return _kept(part.data)


def _kept(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in thaw(said).items() if name not in _MOVING}


def _without_thinking(text: str) -> str:
    thinking = _THINKING.match(text) if "<think>" in text else None
    return text[thinking.end() :].strip() if thinking else text


def _words(parts: Sequence[Part]) -> str:
    """The texts without reminders, which clients put before, after or between what was said."""
    trimmed = (_trimmed(part.text) for part in parts if isinstance(part, Text))
    return "\n\n".join(filter(None, trimmed))


def _answered(parts: Sequence[Part]) -> str:
    """What a model said is one text, however it came and is sent back: in pieces, in blocks, around its thoughts."""
    return _trimmed("".join(part.text for part in parts if isinstance(part, Text)))


def _trimmed(text: str) -> str:
    return (_REMINDER.sub("", text) if "<system-reminder>" in text else text).strip()


def _images(entry: ModelInput) -> list[str]:
    return [part.sha256 or part.url for part in entry.parts if isinstance(part, Media)]


def is_known_by_id(request: ToolRequest) -> bool:
    return bool(_ISSUED.fullmatch(request.call_id))


def _asked(request: ToolRequest) -> list[str]:
    return [request.name, request.call_id] if is_known_by_id(request) else _with_arguments(request)


def _with_arguments(request: ToolRequest) -> list[str]:
    try:
        return [request.name, json.dumps(_arguments.decode(request.arguments or "{}"), sort_keys=True)]
    except (ValueError, RecursionError):  # cut off, or nested deeper than anybody reads
        return [request.name, request.arguments.strip()]


def _asked_before(request: ToolRequest) -> list[str]:
    try:
        return [request.name, json.dumps(json.loads(request.arguments or "{}"), sort_keys=True)]
    except (ValueError, RecursionError):
        return [request.name, request.arguments.strip()]


def _number(written: str) -> int | float:
    """As JavaScript would write it, which has one kind of number: 30.0 is 30, and 2**53 + 1 is 2**53."""
    number = float(written)
    return int(number) if number.is_integer() else number


_arguments = json.JSONDecoder(parse_int=_number, parse_float=_number)
