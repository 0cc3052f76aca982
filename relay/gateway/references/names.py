"""The names by which a request can refer to what lies at the vendor, and how each is written.

Files, containers, stores, prompts, skills and caches of everybody lie behind one account; items of earlier answers and
sounds are the vendor's copies of what it has said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote, urlsplit

from history.dialects.json_access import items, obj, string

ITEM, AUDIO, CONTAINER = "item", "audio", "container"
FILE, VECTOR_STORE, PROMPT, SKILL = "file", "vector store", "prompt", "skill"
CACHE, FILE_STORE = "cached content", "file search store"

# The vendors' own skills have plain names.
_OWN_SKILL = "skill_"
_GOOGLES = "generativelanguage.googleapis.com"


class Reference(NamedTuple):
    kind: str
    name: str


class Name:
    """A field of a request whose value is a name, or holds some."""

    kind: ClassVar[str] = ""

    @classmethod
    def read(cls, value: Any) -> Iterator[Reference]:
        if name := string(value):
            yield Reference(cls.kind, name)


class File(Name):
    kind = FILE


class VectorStore(Name):
    kind = VECTOR_STORE


class FileStore(Name):
    kind = FILE_STORE


class Cache(Name):
    kind = CACHE


class Prompt(Name):
    kind = PROMPT

    @classmethod
    def read(cls, value: Any) -> Iterator[Reference]:
        yield from super().read(obj(value).get("id"))


class Audio(Prompt):
    kind = AUDIO


class Container(Name):
    """An id, or an object that has one, or files and skills to put into a new one."""

    kind = CONTAINER

    @classmethod
    def read(cls, value: Any) -> Iterator[Reference]:
        told = obj(value)
        for name in (value, told.get("id"), told.get("container_id")):
            yield from super().read(name)
        for name in items(told.get("file_ids")):
            yield from File.read(name)
        for skill in items(told.get("skills")):
            if (name := string(obj(skill).get("skill_id"))).startswith(_OWN_SKILL):
                yield Reference(SKILL, name)


class FileUri(Name):
    """Other addresses are anybody's."""

    kind = FILE

    @classmethod
    def read(cls, value: Any) -> Iterator[Reference]:
        uri = unquote(string(value)).strip()
        if uri.startswith("files/") or (urlsplit(uri).hostname or "").endswith(_GOOGLES):
            yield Reference(FILE, uri)


FIELDS: dict[str, type[Name]] = {
    **dict.fromkeys(("file_id", "file_ids"), File),
    **dict.fromkeys(("fileUri", "file_uri"), FileUri),
    **dict.fromkeys(("cachedContent", "cached_content"), Cache),
    **dict.fromkeys(("fileSearchStoreNames", "file_search_store_names"), FileStore),
    **dict.fromkeys(("container", "environment", "container_id"), Container),
    "vector_store_ids": VectorStore,
    "prompt": Prompt,
    "audio": Audio,
}
