"""Walk over all texts of an entry for the redactors, without Django.

Names (call ids, tools, models) are searched for credentials alone, so that a hook cannot break pairing. JSON
inside a text stays JSON. A redacted reasoning part loses its signature, because it is no longer what the vendor signed
and must never be sent back.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from history.entries import OtherPart, Reasoning, ToolDefinition, ToolRequest, ToolResult, UnknownEntry, Value
from history.redaction.detectors import is_secret_beside, without_credentials

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


# Fields that name something. "name" itself names a tool, but the name of an attachment is a text.
_NAMES = frozenset({
    "agent", "call_id", "channel", "end_reason", "media_type", "model", "provider", "redacted", "request_id", "sha256",
    "signature", "source", "status",
})  # fmt: skip
_NAMED = (ToolDefinition, ToolRequest, ToolResult)

# The tokens of a JSON text that can hold a secret: texts (with the colon after a name) and long whole numbers.
_JSON_TOKEN = re.compile(
    # A text that was cut off reaches to the end: else every quote inside it would be tried as another beginning.
    r'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"(?P<colon>\s*+:)?|\Z)|(?<![0-9.eE+-])-?[0-9]{11,}+(?![0-9.eE])',
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


class RedactionWalk:
    """One pass over one entry. Unchanged values are returned as the same object."""

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
            # A number or a time of our own schema is no text; it must stay what its type says.
            return self.item(item) if isinstance(item, Value | Mapping | tuple) else item
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
        detector = is_secret_beside(key, item) if self.redactors.credentials and isinstance(item, str) else None
        if detector:
            self.hits[detector.name] += 1
            return detector.mark
        return self.item(item)

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
