"""Fingerprints: a chain of keyed hashes that recognises a conversation that its client resends each time.

The chain covers what both sides of the wire have in common: trimmed texts, tools by name and parsed arguments (by name
and id for Anthropic's ids), images by hash, results by call id. It leaves out what clients change between turns:
reasoning, block ids, cache markers, system reminders, later instructions, texts of results, the notation of numbers,
and the number of pieces of an answer. Pictures of a model and unknown parts count only if there is no text, because not
every client returns them. The hash is keyed, so a copy of the database cannot be tested with guesses. It is computed
before redaction, and scoped to one API key (or one owner), so users with the same texts never meet.
"""

import hmac
import json
import re
from collections.abc import Sequence

from django.conf import settings

from history.context.messages import SYSTEM_CHANNEL
from history.entries import Entry, Media, ModelInput, ModelOutput, OtherPart, Part, Text, ToolRequest, ToolResults, thaw

SIZE = 16
START = b""
SLICE = 1024 * 1024

FingerprintContent = list[object]  # the values of an entry that the chain covers, as JSON

_json = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode

_MOVING = frozenset({"cache_control", "id", "status"})  # fields of unknown parts that clients change or add
# Some models write thinking into the text, and some clients remove it.
_THINKING = re.compile(r"\s*<think>.*?</think>", re.DOTALL)
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
# Unique ids. Claude Code returns some calls with changed arguments: without a `cd` into the current folder, without
# white space at the ends of lines.
_ISSUED = re.compile(r"toolu_\w{12,}")


def scope_of(*, api_key_id: int | None, owner_id: int) -> str:
    return f"owner:{owner_id}" if api_key_id is None else f"key:{api_key_id}"


def fingerprint(entry: Entry, *, after: bytes, scope: str) -> bytes:
    """The chain one entry further. Entries that the client does not see leave it unchanged."""
    essence = fingerprinted_content(entry)
    if essence is None:
        return after
    mark = hmac.new(settings.PARLEY_FINGERPRINT_KEY, after.ljust(SIZE, b"\0"), "sha256")
    text = _json([scope, essence])
    # In slices, against one more copy of a text of many megabytes.
    for start in range(0, len(text), SLICE):
        mark.update(text[start : start + SLICE].encode())
    return mark.digest()[:SIZE]


def unmatchable_fingerprint(session: object, seq: int) -> bytes:
    """A fingerprint for an entry whose texts are gone. No conversation leads to it."""
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, f"gone|{session}|{seq}".encode(), "sha256")[:SIZE]


def fingerprinted_content(entry: Entry) -> FingerprintContent | None:
    if isinstance(entry, ModelInput):
        if entry.channel == SYSTEM_CHANNEL:
            return None
        images = [part.sha256 or part.url for part in entry.parts if isinstance(part, Media)]
        content: FingerprintContent = [_words(entry.parts), images]
        return ["in", *content] if any(content) else _wordless("in", entry.parts)
    if isinstance(entry, ModelOutput):
        content = [_answer_text(entry.parts), [_call_content(request) for request in entry.tool_requests]]
        return ["out", *content] if any(content) else _wordless("out", entry.parts)
    if isinstance(entry, ToolResults):
        return ["results", sorted(result.call_id for result in entry.results)]
    return None


def _wordless(direction: str, parts: Sequence[Part]) -> FingerprintContent | None:
    others = [_part_content(part) for part in parts if isinstance(part, (Media, OtherPart))]
    return [direction, "", others] if others else None


def _part_content(part: Media | OtherPart) -> object:
    if isinstance(part, Media) and (part.sha256 or part.url):
        return part.sha256 or part.url
    fields = part.extra if isinstance(part, Media) else part.data
    return {name: value for name, value in thaw(fields).items() if name not in _MOVING}


def _words(parts: Sequence[Part]) -> str:
    """The texts without reminders, which clients put before, after or between them."""
    return "\n\n".join(filter(None, (_trimmed(part.text) for part in parts if isinstance(part, Text))))


def _answer_text(parts: Sequence[Part]) -> str:
    """The text of a model as one, because it may come and return in pieces, in blocks or around reasoning."""
    text = _trimmed("".join(part.text for part in parts if isinstance(part, Text)))
    thinking = _THINKING.match(text) if "<think>" in text else None
    return text[thinking.end() :].strip() if thinking else text


def _trimmed(text: str) -> str:
    return (_REMINDER.sub("", text) if "<system-reminder>" in text else text).strip()


def is_known_by_id(request: ToolRequest) -> bool:
    return bool(_ISSUED.fullmatch(request.call_id))


def _call_content(request: ToolRequest) -> list[str]:
    if is_known_by_id(request):
        return [request.name, request.call_id]
    try:
        return [request.name, json.dumps(_arguments.decode(request.arguments or "{}"), sort_keys=True)]
    except (ValueError, RecursionError):  # cut off, or nested too deeply
        return [request.name, request.arguments.strip()]


def _number(written: str) -> int | float:
    """A number as JavaScript writes it, which has one type: 30.0 is 30, and 2**53 + 1 is 2**53."""
    number = float(written)
    return int(number) if number.is_integer() else number


_arguments = json.JSONDecoder(parse_int=_number, parse_float=_number)
