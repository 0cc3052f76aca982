"""What must not be stored, taken out before it is: every text of an entry, whatever its kind.

`redactors_for(mode)` says what a recording mode asks for, `redacted(entry, redactors)` gives the entry as it may be
kept. Each find leaves a typed placeholder such as `[redacted:openai-key]` and is counted; an entry without a find comes
back as the same object. The live call is never touched: only the stored copy is.

Names (call ids, tools, models) are searched for credentials alone, so that pairing survives whatever a hook does. A
redacted reasoning part loses its signature, because it is no longer what the vendor signed and must never be sent back.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

from history import detectors
from history.detectors import is_secret_beside, placeholder, without_credentials
from history.entries import (
    EMPTY,
    Entry,
    ModelOutput,
    OtherPart,
    Reasoning,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    UnknownEntry,
    Value,
)

logger = logging.getLogger(__name__)

MODES = ("full", "redacted", "no_replies", "metadata", "off")
HOOK = "hook"
HOOK_FAILED = "hook-failed"

V = TypeVar("V", bound=Value)


class Redactor(Protocol):
    """Gives the text as it may be stored, and what was taken out of it, counted by name."""

    def __call__(self, text: str, /) -> tuple[str, Counter[str]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactors:
    """Everything that one recording mode does to an entry before it is stored."""

    credentials: bool = False
    others: tuple[Redactor, ...] = ()
    keeps_replies: bool = True

    @property
    def do_nothing(self) -> bool:
        return self.keeps_replies and not self.credentials and not self.others


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """An entry as it may be stored, and how often what was taken out of it."""

    entry: Entry
    hits: Counter[str]


def stores_bodies(mode: str) -> bool:
    """Whether a key that records in this mode keeps any text at all; if not, nothing of an entry is to be written."""
    return _known(mode) not in ("metadata", "off")


def redactors_for(mode: str) -> Redactors:
    """What this recording mode asks for, with the hooks and personal detectors of the settings. Cheap to call."""
    if not stores_bodies(mode):
        raise ValueError(f"Mode '{mode}' stores no texts: ask stores_bodies() before redacting.")
    return _redactors_for(mode, _setting("PARLEY_REDACTION_HOOKS"), _setting("PARLEY_REDACTION_PERSONAL"))


def redacted(entry: Entry, redactors: Redactors) -> Redacted:
    """The entry as it may be stored; the same object where there was nothing to take out."""
    walk = _Walk(redactors)
    if redactors.do_nothing:
        return Redacted(entry=entry, hits=walk.hits)
    kept = entry if redactors.keeps_replies else without_reply(entry)
    return Redacted(entry=walk.value(kept), hits=walk.hits)


def redacted_text(text: str, redactors: Redactors) -> tuple[str, Counter[str]]:
    """One text that is no part of an entry: an error body, a URL, a title."""
    walk = _Walk(redactors)
    return walk.text(text), walk.hits


def without_reply(entry: Entry) -> Entry:
    """That the model answered and which tools it asked for, but not a word of what it said."""
    if not isinstance(entry, ModelOutput):
        return entry
    asked = tuple(ToolRequest(call_id=request.call_id, name=request.name) for request in entry.tool_requests)
    metadata = {**entry.metadata, "recording": "no_replies"}
    return dataclasses.replace(entry, parts=asked, plan=None, metadata=metadata, extra=EMPTY)


def _known(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(f"'{mode}' is no recording mode: choose from {', '.join(MODES)}.")
    return mode


def _setting(name: str) -> tuple[str, ...]:
    return tuple(getattr(settings, name, ()))


@cache
def _redactors_for(mode: str, hooks: tuple[str, ...], personal: tuple[str, ...]) -> Redactors:
    loaded = tuple(load_hook(path) for path in hooks)
    if mode == "full":
        return Redactors(others=loaded)
    others: tuple[Redactor, ...] = (*detectors.personal(personal), *loaded)
    return Redactors(credentials=True, others=others, keeps_replies=mode != "no_replies")


# Hooks: callables of the operator's own.


class WrongHookError(ValueError):
    """A path of PARLEY_REDACTION_HOOKS does not lead to a callable; the text says what to write instead."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A foreign callable that may fail in any way: then the text goes, never the clear text through."""

    path: str
    function: Callable[[str], Any]

    def __call__(self, text: str, /) -> tuple[str, Counter[str]]:
        try:
            return self._read(self.function(text), text)
        except Exception as error:  # noqa: BLE001 - foreign code; whatever it raised, the clear text must not be stored
            # The name alone: the message of an error often quotes the text that it failed on.
            logger.error("Redaction hook %s failed with %s; the text was not stored.", self.path, type(error).__name__)
            return placeholder(HOOK_FAILED), Counter({HOOK_FAILED: 1})

    def _read(self, answer: Any, text: str) -> tuple[str, Counter[str]]:
        if isinstance(answer, str):
            return answer, Counter({HOOK: 1} if answer != text else {})
        cleaned, hits = answer
        if not isinstance(cleaned, str):
            raise TypeError("a hook returns a text, or a text and a Counter")
        return cleaned, Counter({str(name): int(count) for name, count in hits.items()})


def load_hook(path: str) -> Hook:
    try:
        function = import_string(path)
    except ImportError as error:
        raise WrongHookError(f"PARLEY_REDACTION_HOOKS names '{path}', which cannot be imported: {error}") from error
    if not callable(function):
        raise WrongHookError(
            f"PARLEY_REDACTION_HOOKS names '{path}', which is a {type(function).__name__}, not a callable."
        )
    return Hook(path, function)


@register()
def check_redaction_settings(**_: Any) -> list[CheckMessage]:
    """A wrong hook or detector stops the start; it must not be found when the first secret comes by."""
    found: list[CheckMessage] = []
    for path in _setting("PARLEY_REDACTION_HOOKS"):
        try:
            load_hook(path)
        except WrongHookError as error:
            hint = "Write the dotted path of a function that takes a text and returns one: 'mycompany.privacy.clean'."
            found.append(Error(str(error), hint=hint, id="history.E001"))
    try:
        detectors.personal(_setting("PARLEY_REDACTION_PERSONAL"))
    except ValueError as error:
        found.append(
            Error(f"PARLEY_REDACTION_PERSONAL: {error}", hint="Remove the name or correct it.", id="history.E002")
        )
    return found


# The walk over an entry.

# Fields that name something. "name" itself names a tool, but the name of an attachment is a text.
_NAMES = frozenset(
    {
        "agent",
        "call_id",
        "channel",
        "end_reason",
        "media_type",
        "model",
        "provider",
        "redacted",
        "request_id",
        "sha256",
        "signature",
        "source",
        "status",
    }
)
_NAMED = (ToolDefinition, ToolRequest, ToolResult)

# The tokens of a JSON text that can hold a secret: texts (with the colon after a name) and long whole numbers.
_JSON_TOKEN = re.compile(
    r'"(?:[^"\\]++|\\.)*+"(?P<colon>\s*+:)?|(?<![0-9.eE+-])-?[0-9]{11,}+(?![0-9.eE])',
    re.DOTALL,
)
# Below this a whole number is neither a card nor a phone number.
_LONG = 10**10


_shapes: dict[type[Value], tuple[tuple[str, bool], ...]] = {}


def _shape(cls: type[Value]) -> tuple[tuple[str, bool], ...]:
    """Every field of the class, and whether it is a name; worked out once."""
    if cls not in _shapes:
        named = _NAMES | {"name"} if issubclass(cls, _NAMED) else _NAMES
        _shapes[cls] = tuple((item.name, item.name in named) for item in dataclasses.fields(cls))
    return _shapes[cls]


class _Walk:
    """One pass over one entry. Whatever is unchanged is given back as the same object."""

    __slots__ = ("hits", "redactors")

    def __init__(self, redactors: Redactors) -> None:
        self.redactors = redactors
        self.hits: Counter[str] = Counter()

    def text(self, text: str) -> str:
        kept = self.name(text)
        for redactor in self.redactors.others if text else ():
            kept, hits = redactor(kept)
            self.hits.update(hits)
        return text if kept == text else kept

    def name(self, text: str) -> str:
        return without_credentials(text, self.hits) if self.redactors.credentials else text

    def value(self, value: V) -> V:
        if isinstance(value, UnknownEntry | OtherPart):
            return self._replaced(value, {"data": self._foreign(value.data), "extra": self.mapping(value.extra)})
        changed = self._replaced(
            value, {field: self._field(value, field, is_name) for field, is_name in _shape(type(value))}
        )
        if changed is not value and isinstance(changed, Reasoning):
            return dataclasses.replace(changed, signature="", redacted="")
        return changed

    def _replaced(self, value: V, fields: Mapping[str, Any]) -> V:
        changes = {name: item for name, item in fields.items() if item is not getattr(value, name)}
        return dataclasses.replace(value, **changes) if changes else value

    def _field(self, value: Value, field: str, is_name: bool) -> Any:
        item = getattr(value, field)
        if not isinstance(item, str):
            return self.item(item)
        if isinstance(value, ToolRequest) and field == "arguments":
            return self.json_text(item)
        return self.name(item) if is_name else self.text(item)

    def _foreign(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """What this version cannot read: texts all through, but what says its kind is a name."""
        names = {key: self.name(data[key]) for key in ("kind", "type") if isinstance(data.get(key), str)}
        rest = {key: item for key, item in data.items() if key not in names}
        kept = self.mapping(rest)
        unchanged = kept is rest and all(data[key] == name for key, name in names.items())
        return data if unchanged else {**names, **kept}

    def item(self, item: Any) -> Any:
        """Any value of a JSON tree or of a field."""
        if isinstance(item, str):
            return self.text(item)
        if isinstance(item, Value):
            return self.value(item)
        if isinstance(item, Mapping):
            return self.mapping(item)
        if isinstance(item, tuple | list):
            return self._sequence(item)
        if isinstance(item, int) and abs(item) >= _LONG:
            return self._number(item)
        return item

    def _sequence(self, items: Sequence[Any]) -> Sequence[Any]:
        kept = tuple(self.item(item) for item in items)
        return items if all(new is old for new, old in zip(kept, items, strict=True)) else kept

    def _number(self, number: int) -> int | str:
        kept = self.text(str(number))
        return number if kept == str(number) else kept

    def mapping(self, items: Mapping[str, Any]) -> Mapping[str, Any]:
        kept: dict[str, Any] = {}
        unchanged = True
        for key, item in items.items():
            new = self._free(self.text(key), kept)
            kept[new] = self._beside(key, item)
            unchanged = unchanged and new == key and kept[new] is item
        return items if unchanged else kept

    def _free(self, key: str, taken: Mapping[str, Any]) -> str:
        """Two names that became one placeholder must not cost a value."""
        free, number = key, 2
        while free in taken:
            free, number = f"{key} {number}", number + 1
        return free

    def _beside(self, key: str, item: Any) -> Any:
        """The value of a name: `{"password": "…"}` is a secret that neither text shows alone."""
        kept = self.item(item)
        if kept is item and isinstance(item, str) and self.redactors.credentials:
            detector = is_secret_beside(key, item)
            if detector:
                self.hits[detector.name] += 1
                return detector.mark
        return kept

    def json_text(self, text: str) -> str:
        """Arguments as the model wrote them: only tokens that hold a secret are rewritten, so JSON stays JSON."""
        name = ""

        def rewrite(match: re.Match[str]) -> str:
            nonlocal name
            token, colon = match[0], match["colon"] or ""
            literal = token[: len(token) - len(colon)]
            kept = self._json_token(literal, name)
            name = literal[1:-1] if colon else ""
            return kept + colon

        kept = _JSON_TOKEN.sub(rewrite, text)
        if not _is_json(kept):
            kept = self.text(kept)
        return text if kept == text else kept

    def _json_token(self, literal: str, name: str) -> str:
        try:
            old = json.loads(literal)
        except ValueError:
            return literal
        new = self._beside(name, old) if name else self.item(old)
        return literal if new == old else json.dumps(new, ensure_ascii="\\u" in literal)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
