"""References of requests to files, containers, stored items and caches at the vendor.

All keys of a server share one account at the vendor, so a request may only refer to objects of its own key. The types
here are fields for msgspec: the parser passes the value of each to its `read`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

import msgspec

from history.dialects.json_access import items, obj, string

ITEM, AUDIO, CONTAINER = "item", "audio", "container"
FILE, VECTOR_STORE, PROMPT, SKILL = "file", "vector store", "prompt", "skill"
CACHE, FILE_STORE = "cached content", "file search store"

_CUSTOM_SKILL = "skill_"  # the prefix of customers' skills; the vendors' own have plain names
_GOOGLE_FILES = "generativelanguage.googleapis.com"


class Reference(NamedTuple):
    kind: str
    name: str


class NameField:
    """A request field whose value has references."""

    kind: ClassVar[str] = ""

    @classmethod
    def read(cls, value: object) -> Iterator[Reference]:
        if name := string(value):
            yield Reference(cls.kind, name)


class File(NameField):
    kind = FILE


class VectorStore(NameField):
    kind = VECTOR_STORE


class FileStore(NameField):
    kind = FILE_STORE


class Cache(NameField):
    kind = CACHE


class Prompt(NameField):
    kind = PROMPT

    @classmethod
    def read(cls, value: object) -> Iterator[Reference]:
        yield from super().read(obj(value).get("id"))


class Audio(Prompt):
    kind = AUDIO


class Container(NameField):
    """An id, or an object with an id, or files and skills for a new container."""

    kind = CONTAINER

    @classmethod
    def read(cls, value: object) -> Iterator[Reference]:
        container = obj(value)
        for name in (value, container.get("id"), container.get("container_id")):
            yield from super().read(name)
        for name in items(container.get("file_ids")):
            yield from File.read(name)
        for skill in items(container.get("skills")):
            if (name := string(obj(skill).get("skill_id"))).startswith(_CUSTOM_SKILL):
                yield Reference(SKILL, name)


class FileUri(NameField):
    """URLs of other hosts are not references."""

    kind = FILE

    @classmethod
    def read(cls, value: object) -> Iterator[Reference]:
        uri = unquote(string(value)).strip()
        if uri.startswith("files/") or (urlsplit(uri).hostname or "").endswith(_GOOGLE_FILES):
            yield Reference(FILE, uri)


# Fields of all dialects, for bodies that only a lenient parser accepts.
NAME_FIELDS: dict[str, type[NameField]] = {
    **dict.fromkeys(("file_id", "file_ids"), File),
    **dict.fromkeys(("fileUri", "file_uri"), FileUri),
    **dict.fromkeys(("cachedContent", "cached_content"), Cache),
    **dict.fromkeys(("fileSearchStoreNames", "file_search_store_names"), FileStore),
    **dict.fromkeys(("container", "environment", "container_id"), Container),
    "vector_store_ids": VectorStore,
    "prompt": Prompt,
    "audio": Audio,
}
# The keys by which such a parser recognises a reference.
REFERENCE_KEYS = frozenset(
    {
        *("id", "type", "content", "container_id", "file_ids", "skills", "skill_id"),
        *("encrypted_content", "result", "results"),
    }
)


class CountedText(str):
    """A text that decides whether its object is a reference; occurrences are counted to detect duplicate keys."""

    __slots__ = ()


class AnyObject(msgspec.Struct, gc=False):
    """An object with any content."""


class FileSource(msgspec.Struct):
    file_id: File | None = None
    content: "str | list[ContentBlock] | AnyObject | None" = None


class ContentBlock(msgspec.Struct):
    """A content part: files are named by a `source` (Anthropic), a `file` (Chat), or the id alone (Responses)."""

    source: str | FileSource | None = None
    file: str | FileSource | None = None
    file_id: File | None = None
    content: "str | list[ContentBlock] | AnyObject | None" = None


# A union also where a text is usual: so a reference counts even if the same key occurs again.
Content = str | int | float | list[ContentBlock] | ContentBlock | None


class ObjectWithId(msgspec.Struct):
    id: str | None = None


class ObjectWithType(msgspec.Struct, gc=False):
    type: str | None = None


@dataclass(frozen=True, slots=True)
class IssuedIds:
    """Where a reply has ids of stored objects. Stream events without `mark` need no parsing."""

    mark: bytes
    decoder: msgspec.json.Decoder[Any]
    read: Callable[[Any], Iterator[str | None]]
