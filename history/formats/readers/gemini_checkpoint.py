"""Checkpoints of Gemini CLI (`/chat save`): contents without ids or times.

A checkpoint saved again under the same tag begins like the one before, so its id is made from how it begins: then the
new entries are appended, and where the two part a branch begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from history.dialects.json_access import compact, items, obj
from history.entries import Entry, ModelInput, now
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, chain_id, gettext_noop
from history.formats.sources import Sample, Source
from history.formats.trees import add_ids, chain_nodes
from history.formats.wire import Wire

NAME = "gemini-checkpoint"
CLIENT = "Gemini CLI"
TELLING = 4  # contents: the environment, its acknowledgement, the first question and its answer


def recognises(sample: Sample) -> bool:
    if sample.shape == "object":
        history = items(sample.first.get("history"))
        return bool(history) and all(_is_content(content) for content in history[:3])
    return sample.shape == "array" and bool(sample.items) and all(_is_content(item) for item in sample.items)


def _is_content(value: Any) -> bool:
    return obj(value).get("role") in ("user", "model") and isinstance(obj(value).get("parts"), list)


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    document = source.document()
    contents = items(document.get("history") if isinstance(document, Mapping) else document)
    if not contents:
        raise FormatError(gettext_noop("the checkpoint is empty"))
    yield _conversation([obj(content) for content in contents])


def _conversation(contents: list[Mapping[str, Any]]) -> Conversation:
    notes = Notes()
    notes("lost", gettext_noop("The checkpoint has no times: its entries have that of the import."))
    wire = Wire("gemini-generate", notes)
    entries = [_marked(entry) for entry in wire.read(contents, at=now())]
    return Conversation(
        source_id=chain_id("", compact(contents[:TELLING])),
        client=CLIENT,
        nodes=chain_nodes(add_ids(entries)),
        blobs=wire.blobs,
        notes=notes.as_tuple(),
    )


def _marked(entry: Entry) -> Entry:
    """Mark the environment message, which the program writes first, as internal."""
    if isinstance(entry, ModelInput) and entry.text.lstrip().startswith(
        ("This is the Gemini CLI", "<session_context>")
    ):
        return replace(entry, is_internal=True)
    return entry
