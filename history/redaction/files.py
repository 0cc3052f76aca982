"""Redaction of text files attached to an entry.

Images, audio, PDF and other binary files are not searched. What a file is, its bytes say; a claim decides only
where a text is in none of the encodings that can be told apart. No Django.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from history.db.packing import parts_of
from history.entries import Entry, Media, ModelInput, ModelOutput, Part, ToolResults
from history.redaction.walker import RedactionWalk, Redactors

_WITHOUT_TEXT = ("image/", "audio/", "video/", "font/", "application/pdf", "application/zip")
_TEXTS = ("text/", "application/json", "application/xml")
_BYTE_ORDER = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """An entry that names what may be stored; `files` are the bytes that are new, by their hash."""

    entry: Entry
    hits: Counter[str] = field(default_factory=Counter)
    files: dict[str, bytes] = field(default_factory=dict)


def redacted_files(entry: Entry, redactors: Redactors, *, read: Callable[[str], bytes | None]) -> Cleaned:
    """`read` gives the bytes of a hash. The same entry where there was nothing to take out."""
    named = {part.sha256: part for part in parts_of(entry) if isinstance(part, Media) and may_be_text(part)}
    if not named or redactors.do_nothing:
        return Cleaned(entry=entry)
    walk, instead = RedactionWalk(redactors), dict[str, bytes]()
    for name, media in named.items():
        content = read(name)
        kept = _cleaned(content, media.media_type, walk) if content else content
        if kept is not None and kept != content:
            instead[name] = kept
    if not instead:
        return Cleaned(entry=entry)
    files = {hashlib.sha256(kept).hexdigest(): kept for kept in instead.values()}
    return Cleaned(entry=_naming(entry, instead), hits=walk.hits, files=files)


def may_be_text(media: Media) -> bool:
    kind = media.media_type.lower()
    return bool(media.sha256) and (kind.partition(";")[0].endswith("+xml") or not kind.startswith(_WITHOUT_TEXT))


def _cleaned(content: bytes, media_type: str, walk: RedactionWalk) -> bytes:
    encoding = _encoding_of(content, media_type)
    if not encoding:
        return content
    text = content.decode(encoding)
    is_json = media_type.lower().partition(";")[0].endswith(("/json", "+json"))
    kept = walk.json_text(text) if is_json else walk.text(text)
    return content if kept == text else kept.encode(encoding, "replace")


def _encoding_of(content: bytes, media_type: str) -> str:
    """'' for what is no text."""
    if content.startswith(_BYTE_ORDER):
        return "utf-16" if _reads_as("utf-16", content) else ""
    if b"\0" in content:
        return ""
    if _reads_as("utf-8", content):
        return "utf-8"
    # Every byte is a character there, and those that credentials are made of are the same ones in most encodings.
    return "latin-1" if media_type.lower().startswith(_TEXTS) else ""


def _reads_as(encoding: str, content: bytes) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _naming(entry: Entry, instead: Mapping[str, bytes]) -> Entry:
    if isinstance(entry, ModelInput | ModelOutput):
        return replace(entry, parts=_renamed(entry.parts, instead))
    if isinstance(entry, ToolResults):
        results = tuple(replace(result, parts=_renamed(result.parts, instead)) for result in entry.results)
        return replace(entry, results=results)
    return entry


def _renamed(parts: Iterable[Part], instead: Mapping[str, bytes]) -> tuple[Part, ...]:
    return tuple(
        replace(part, sha256=hashlib.sha256(kept).hexdigest(), size=len(kept))
        if isinstance(part, Media) and (kept := instead.get(part.sha256)) is not None
        else part
        for part in parts
    )
