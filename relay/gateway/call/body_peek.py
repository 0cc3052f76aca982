"""One look into the body of a call: the fields that carrying it takes an interest in, and what it refers to.

The parser calls back where a name stands that refers to something at the vendor, and builds next to nothing of the
conversation around it. Where such a name may stand is written down here, because the same words in a citation, in the
result of a tool or in the schema of one refer to nothing. Of a body that only a more lenient parser reads, whatever
looks like a reference counts as one.

Parsers disagree on an object that has the same key twice: most take the last value, some the first, some merge both.
So a body that refers to something is refused if any of its objects does.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from history.dialects.json_access import items, obj, string
from relay.gateway.call.addresses import ANTHROPIC, CHAT, GEMINI, RESPONSES
from relay.gateway.call.bodies import Glance, Unreadable, fields, read_json
from relay.gateway.references.names import (
    FIELDS,
    ITEM,
    Audio,
    Cache,
    Container,
    File,
    FileStore,
    FileUri,
    Prompt,
    Reference,
    VectorStore,
)
from relay.runtime.parsing import LARGE

_NOTHING = msgspec.Raw(b"null")


class _Other(msgspec.Struct, gc=False):
    """Any object: what is in it is not looked at."""


class _Source(msgspec.Struct):
    file_id: File | None = None
    content: str | list[_Block] | _Other | None = None


class _Block(msgspec.Struct):
    """A part of what is said: Anthropic's files have a source, Chat's a `file`, those of Responses the id alone."""

    source: str | _Source | None = None
    file: str | _Source | None = None
    file_id: File | None = None
    content: str | list[_Block] | _Other | None = None


# Typed also where it is nearly always a text: so what is in it is noted even if the same key comes once more.
_Said = str | int | float | list[_Block] | _Block | None


class _Turn(msgspec.Struct):
    content: str | list[_Block] | _Other | None = None


class _ChatTurn(msgspec.Struct):
    content: _Said = None
    audio: Audio | None = None


class Typed(msgspec.Struct, gc=False):
    type: str | None = None


class _Tool(msgspec.Struct):
    vector_store_ids: list[VectorStore] | None = None
    container: Container | None = None
    environment: Container | None = None
    input_image_mask: _Block | None = None
    tools: str | list[_Tool] | None = None


class Thing(msgspec.Struct):
    """An item of Responses, as far as it can be told whether it says itself what it was."""

    type: str | None = None
    id: str | None = None
    encrypted_content: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    results: msgspec.Raw = _NOTHING


class _ItemType(str):
    """The type of an item decides whether it is a reference, so each occurrence is counted."""

    __slots__ = ()


class _Item(Thing):
    type: _ItemType | None = None
    content: str | list[_Block] | _Other | None = None
    output: _Said = None
    tools: str | list[_Tool] | None = None


class _FileData(msgspec.Struct):
    fileUri: FileUri | None = None  # noqa: N815 - Google's words
    file_uri: FileUri | None = None


class _Part(msgspec.Struct):
    fileData: _FileData | None = None  # noqa: N815
    file_data: _FileData | None = None
    functionResponse: _Content | None = None  # noqa: N815
    function_response: _Content | None = None


class _Content(msgspec.Struct):
    parts: list[_Part] | _Part | None = None


class _FileSearch(msgspec.Struct):
    fileSearchStoreNames: list[FileStore] | None = None  # noqa: N815
    file_search_store_names: list[FileStore] | None = None


class _GeminiTool(msgspec.Struct):
    fileSearch: _FileSearch | None = None  # noqa: N815
    file_search: _FileSearch | None = None


class _OfAnthropic(Glance, total=False):
    messages: list[_Turn]
    container: Container | None
    tools: list[Typed] | None


class _OfChat(Glance, total=False):
    messages: list[_ChatTurn]
    audio: Any


class _OfResponses(Glance, total=False):
    input: str | list[_Item] | None
    prompt: Prompt | None
    tools: list[_Tool] | None
    store: Any


class _OfGemini(Glance, total=False):
    contents: str | list[_Content] | _Content | None
    systemInstruction: str | _Content | None  # noqa: N815
    system_instruction: str | _Content | None
    cachedContent: Cache | None  # noqa: N815
    cached_content: Cache | None
    tools: list[_GeminiTool] | _GeminiTool | None
    generateContentRequest: _OfGemini  # noqa: N815
    generate_content_request: _OfGemini


class _Seen(threading.local):
    """What the parser has called back about, while it reads one body."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.references: list[Reference] = []
        self.has_names = False
        self.item_types = 0


_seen = _Seen()


def _noted(kind: type[Any], value: Any) -> Any:
    if kind is _ItemType:
        _seen.item_types += 1
        return _ItemType(string(value))
    _seen.has_names = True
    _seen.references.extend(kind.read(value))
    return kind()


_LOOKS = {ANTHROPIC: _OfAnthropic, CHAT: _OfChat, RESPONSES: _OfResponses, GEMINI: _OfGemini}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    dialect: msgspec.json.Decoder(look, dec_hook=_noted) for dialect, look in _LOOKS.items()
}
# What an item of this type must have to be understood without being looked up.
_WHOLE_WITH = {"reasoning": "encrypted_content", "image_generation_call": "result", "file_search_call": "results"}
_REFERRING = frozenset({None, "item_reference", *_WHOLE_WITH})
_EMPTY = (b"null", b'""', b"[]")
LONGEST_KEY = 100
# What is kept of an object that only a lenient parser reads: enough to tell whether it is a reference.
_TELLING = frozenset({"id", "type", "content", "container_id", "file_ids", "skills", "skill_id", *_WHOLE_WITH.values()})


# Top-level fields that refer to something as soon as they are there.
_REFERRING_FIELDS = ("previous_response_id", "conversation")


def glanced_at(body: bytes, dialect: str) -> tuple[Mapping[str, Any], list[Reference]]:
    """The fields of a `Glance` and a few more, and what the body refers to, each once. Raises Unreadable.

    A large body belongs into a thread: `relay.runtime.parsing.parse_apart`.
    """
    _seen.begin()
    try:
        asked: dict[str, Any] = dict(_DECODERS[dialect].decode(body))
    except (ValueError, RecursionError):
        return _leniently(body)
    found = _seen.references
    if dialect == RESPONSES:
        found += [Reference(ITEM, item.id) for item in items(asked.get("input")) if item.id and _is_reference(item)]
    if found or _seen.has_names or not asked.keys().isdisjoint(_REFERRING_FIELDS) or _has_two_types(asked):
        _check_unambiguous(body)
    for said in ("messages", "input", "contents"):
        asked.pop(said, None)
    return asked, list(dict.fromkeys(found)) if found else found


def _leniently(body: bytes) -> tuple[Mapping[str, Any], list[Reference]]:
    """Whatever looks like a reference counts as one. Of the conversation next to nothing is built here, either."""
    _seen.begin()
    asked, found, names = dict[str, Any](), _seen.references, Counter[str]()
    try:
        for field in fields(body):
            names[field.name] += 1
            value = body[field.value : field.end]
            kept = read_json(value, _kept_of_object)
            if field.name in FIELDS:
                _note(field.name, kept)
            elif field.name == "input":
                found += _items_in(kept)
            if field.name in Glance.__annotations__ and len(value) <= LARGE:
                asked[field.name] = read_json(value, dict)
    except (ValueError, RecursionError) as error:
        # Nothing is passed on unread: the address may name the model, and the vendor's parser be more lenient still.
        raise Unreadable(f"it is not JSON ({str(error)[:LONGEST_KEY]})") from None
    if (twice := names.most_common(1)) and twice[0][1] > 1:
        raise _ambiguous(twice[0][0])
    return asked, list(dict.fromkeys(found))


def _kept_of_object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | None:
    """Note what an object refers to, and keep what the object around it needs to tell whether it is a reference."""
    made = _object_with_unique_keys(pairs)
    for name in made.keys() & FIELDS.keys():
        _note(name, made[name])
    return {name: made[name] for name in made.keys() & _TELLING} or None


def _note(name: str, value: Any) -> None:
    for one in items(value) or [value]:
        _seen.references.extend(FIELDS[name].read(one))


def _check_unambiguous(body: bytes) -> None:
    """Parse the whole body once more. Raises Unreadable where an object has a key twice."""
    try:
        read_json(body, _checked)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"it is not JSON ({str(error)[:LONGEST_KEY]})") from None


def _checked(pairs: list[tuple[str, Any]]) -> None:
    _object_with_unique_keys(pairs)


def _object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise _ambiguous(twice)
    return made


def _ambiguous(name: str) -> Unreadable:
    return Unreadable(f"an object has the key '{name[:LONGEST_KEY]}' twice; send each key once")


def _has_two_types(asked: Mapping[str, Any]) -> bool:
    """Of items of Responses: types that the parser has seen and that a later one replaced."""
    there = sum(1 for item in items(asked.get("input")) if item.type is not None) if _seen.item_types else 0
    return there != _seen.item_types


def _is_reference(item: _Item) -> bool:
    """The API looks an item up by its id where it does not say itself what it was."""
    if item.type not in _REFERRING or not item.id:
        return False
    if item.type is None:
        return not item.content
    return item.type == "item_reference" or not is_whole(item)


def is_whole(thing: Thing) -> bool:
    needed = _WHOLE_WITH.get(thing.type or "")
    return needed is None or bytes(memoryview(getattr(thing, needed))[:5]) not in _EMPTY


def _items_in(given: Any) -> Iterator[Reference]:
    for told in map(obj, items(given)):
        kind, name = told.get("type"), string(told.get("id"))
        needed = "content" if kind is None else _WHOLE_WITH.get(str(kind), "")
        if name and (kind == "item_reference" or (needed and not told.get(needed))):
            yield Reference(ITEM, name)
