"""Walk over all texts and text files of an entry for the redactors, without Django.

Names (call ids, tools, models) are searched for credentials alone, so that a hook cannot break pairing. JSON inside a
text stays JSON. A redacted reasoning part loses its signature, because it is no longer what the vendor signed. The
bytes decide whether a file is a text; its media type decides only where the encoding cannot be detected.
"""

import codecs
import dataclasses
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar

from history.db.packing import media_of
from history.entries.kinds import Entry, ModelInput, ModelOutput, ToolResults, UnknownEntry
from history.entries.values import JsonDict, JsonObject, Media, OtherPart, Part, Reasoning, ToolRequest, Value
from history.redaction.detectors import is_secret_beside, placeholder, without_credentials

V = TypeVar("V", bound=Value)


# Gives the text as it may be stored, and what was taken out of it, counted by name.
Redactor = Callable[[str], tuple[str, Counter[str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactors:
    """Everything that one recording mode does to an entry before it is stored."""

    credentials: bool = False
    others: tuple[Redactor, ...] = ()
    keeps_replies: bool = True

    @property
    def do_nothing(self) -> bool:
        return self.keeps_replies and not self.credentials and not self.others


# Fields that name something; the name of an attachment is a text.
_NAMES = frozenset({
    "agent", "call_id", "channel", "end_reason", "media_type", "model", "name", "provider", "redacted", "request_id",
    "sha256", "signature", "source", "status",
})  # fmt: skip

# The tokens of a JSON text that can hold a secret: texts (with the colon after a name) and long whole numbers.
_JSON_TOKEN = re.compile(
    # A text that was cut off reaches to the end: else every quote inside it would be tried as another beginning.
    r'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"(?P<colon>\s*+:)?|\Z)|(?<![0-9.eE+-])-?[0-9]{11,}+(?![0-9.eE])',
    re.DOTALL,
)
_LONG = 10**10  # below this a whole number is neither a card nor a phone number


@cache
def _shape(cls: type[Value]) -> tuple[tuple[str, bool], ...]:
    named = _NAMES - {"name"} if issubclass(cls, Media) else _NAMES
    return tuple((item.name, item.name in named) for item in dataclasses.fields(cls))


class RedactionWalk:
    """One pass over one entry. Unchanged values are returned as the same object."""

    __slots__ = ("hits", "redactors")

    def __init__(self, redactors: Redactors) -> None:
        self.redactors = redactors
        self.hits: Counter[str] = Counter()

    def text(self, text: str) -> str:
        cleaned = self.name(text)
        for redactor in self.redactors.others if text else ():
            cleaned, hits = redactor(cleaned)
            self.hits.update(hits)
        return text if cleaned == text else cleaned

    def name(self, text: str) -> str:
        return without_credentials(text, self.hits) if self.redactors.credentials else text

    def value(self, value: V) -> V:
        if isinstance(value, UnknownEntry | OtherPart):
            return self._replaced(value, {"data": self._foreign(value.data), "extra": self.mapping(value.extra)})
        shape = _shape(type(value))  # type: ignore[arg-type]  # a class is hashable
        changed = self._replaced(value, {field: self._field(value, field, is_name) for field, is_name in shape})
        if changed is not value and isinstance(changed, Reasoning):
            return dataclasses.replace(changed, signature="", redacted="")
        return changed

    def _replaced(self, value: V, fields: JsonObject) -> V:
        changes = {name: item for name, item in fields.items() if item is not getattr(value, name)}
        return dataclasses.replace(value, **changes) if changes else value

    def _field(self, value: Value, field: str, is_name: bool) -> Any:
        item = getattr(value, field)
        if not isinstance(item, str):
            # Numbers and times of the schema keep their types.
            return self.item(item) if isinstance(item, Value | Mapping | tuple) else item
        if isinstance(value, ToolRequest) and field == "arguments":
            return self.json_text(item)
        return self.name(item) if is_name else self.text(item)

    def _foreign(self, data: JsonObject) -> JsonObject:
        """Data that this version cannot read: all strings are texts, but kind and type are names."""
        names = {key: self.name(data[key]) for key in ("kind", "type") if isinstance(data.get(key), str)}
        rest = {key: item for key, item in data.items() if key not in names}
        cleaned = self.mapping(rest)
        unchanged = cleaned is rest and all(data[key] == name for key, name in names.items())
        return data if unchanged else {**names, **cleaned}

    def item(self, item: Any) -> Any:
        if isinstance(item, str):
            return self.text(item)
        if isinstance(item, Value):
            return self.value(item)
        if isinstance(item, Mapping):
            return self.mapping(item)
        if isinstance(item, tuple | list):
            items = tuple(map(self.item, item))
            return item if all(new is old for new, old in zip(items, item, strict=True)) else items
        if isinstance(item, int) and abs(item) >= _LONG:
            cleaned = self.text(str(item))
            return item if cleaned == str(item) else cleaned
        return item

    def mapping(self, items: JsonObject) -> JsonObject:
        cleaned: JsonDict = {}
        unchanged = True
        for key, item in items.items():
            new = wanted = self.text(key)
            number = 2
            while new in cleaned:  # two names that became one placeholder must not cost a value
                new, number = f"{wanted} {number}", number + 1
            cleaned[new] = self._beside(key, item)
            unchanged = unchanged and new == key and cleaned[new] is item
        return items if unchanged else cleaned

    def _beside(self, key: str, item: Any) -> Any:
        """The value of a name: `{"password": "…"}` is a secret that neither text shows alone."""
        detector = is_secret_beside(key, item) if self.redactors.credentials and isinstance(item, str) else None
        if detector:
            self.hits[detector.name] += 1
            return placeholder(detector.name)
        return self.item(item)

    def json_text(self, text: str) -> str:
        """Arguments as the model wrote them: only tokens that hold a secret are rewritten, so JSON stays JSON."""
        name = ""

        def rewrite(match: re.Match[str]) -> str:
            nonlocal name
            token, colon = match[0], match["colon"] or ""
            literal = token[: len(token) - len(colon)]
            cleaned = self._json_token(literal, name)
            name = literal[1:-1] if colon else ""
            return cleaned + colon

        cleaned = _JSON_TOKEN.sub(rewrite, text)
        try:
            json.loads(cleaned)
        except (ValueError, RecursionError):
            cleaned = self.text(cleaned)
        return text if cleaned == text else cleaned

    def _json_token(self, literal: str, name: str) -> str:
        try:
            old = json.loads(literal)
        except ValueError:
            return literal
        new = self._beside(name, old) if name else self.item(old)
        return literal if new == old else json.dumps(new, ensure_ascii="\\u" in literal)


_WITHOUT_TEXT = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip")
_TEXTS = ("text/", "application/json", "application/xml")
_BYTE_ORDER = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted:
    """An entry as it may be stored, what was taken out of it, and the bytes that are new, by their hash."""

    entry: Entry
    hits: Counter[str] = field(default_factory=Counter)
    files: dict[str, bytes] = field(default_factory=dict)


def redacted_files(entry: Entry, redactors: Redactors, *, read: Callable[[str], bytes]) -> Redacted:
    """`read` gives the bytes of a hash or raises LookupError. The same entry where there was nothing to take out."""
    named = {media.sha256: media for media in media_of(entry) if may_be_text(media)}
    if not named or redactors.do_nothing:
        return Redacted(entry=entry)
    walk, cleaned_files = RedactionWalk(redactors), dict[str, bytes]()
    for name, media in named.items():
        with suppress(LookupError):
            content = read(name)
            if (cleaned := _clean(content, media.media_type, walk)) != content:
                cleaned_files[name] = cleaned
    if not cleaned_files:
        return Redacted(entry=entry)
    files = {hashlib.sha256(cleaned).hexdigest(): cleaned for cleaned in cleaned_files.values()}
    return Redacted(entry=_naming(entry, cleaned_files), hits=walk.hits, files=files)


def may_be_text(media: Media) -> bool:
    kind = media.media_type.lower()
    return bool(media.sha256) and (kind.partition(";")[0].endswith("+xml") or not kind.startswith(_WITHOUT_TEXT))


def _clean(content: bytes, media_type: str, walk: RedactionWalk) -> bytes:
    for encoding in _encodings(content, media_type.lower()):
        try:
            text = content.decode(encoding)
        except UnicodeDecodeError:
            continue
        is_json = media_type.lower().partition(";")[0].endswith(("/json", "+json"))
        cleaned = walk.json_text(text) if is_json else walk.text(text)
        return content if cleaned == text else cleaned.encode(encoding, "replace")
    return content


def _encodings(content: bytes, media_type: str) -> tuple[str, ...]:
    """The encodings that the bytes may have if they are a text."""
    if content.startswith(_BYTE_ORDER):
        return ("utf-16",)
    if b"\0" in content:
        return ()
    # Every byte is a character in Latin-1, and those of credentials are the same ones in most encodings.
    return ("utf-8", "latin-1") if media_type.startswith(_TEXTS) else ("utf-8",)


def _naming(entry: Entry, cleaned_files: Mapping[str, bytes]) -> Entry:
    if isinstance(entry, ModelInput | ModelOutput):
        return replace(entry, parts=_renamed(entry.parts, cleaned_files))
    if isinstance(entry, ToolResults):
        results = tuple(replace(result, parts=_renamed(result.parts, cleaned_files)) for result in entry.results)
        return replace(entry, results=results)
    return entry


def _renamed(parts: Iterable[Part], cleaned_files: Mapping[str, bytes]) -> tuple[Part, ...]:
    return tuple(
        replace(part, sha256=hashlib.sha256(cleaned).hexdigest(), size=len(cleaned))
        if isinstance(part, Media) and (cleaned := cleaned_files.get(part.sha256)) is not None
        else part
        for part in parts
    )
