"""The export of Claude.ai: `conversations.json` in a zip, a list of conversations.

`text` repeats what the blocks of `content` say, so it counts only where there are none. Ids of tools are sometimes
missing: then results belong to calls in their order. The newer exports say which message follows which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from history.dialects.json_access import count, obj, objs, string
from history.entries import Entry, Media, ModelInput, ModelOutput, OtherPart, Part, Text, ToolResults
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, gettext_noop
from history.formats.many import read_each
from history.formats.sources import Sample, Source
from history.formats.times import Clock, moment
from history.formats.trees import Tree
from history.formats.wire import CHANNEL, Wire

NAME = "claude-ai"
CLIENT = "Claude.ai"
ROOT = "00000000-0000-4000-8000-000000000000"
BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document"})


def recognises(sample: Sample) -> bool:
    return any("chat_messages" in item and "uuid" in item for item in sample.items)


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    yield from read_each(source, _conversation)


def _conversation(item: Mapping[str, Any]) -> Iterator[Conversation]:
    uuid = string(item.get("uuid"))
    if not uuid:
        raise FormatError(gettext_noop("it has no uuid"))
    messages = objs(item.get("chat_messages"))
    if not messages:
        raise FormatError(gettext_noop("it has no messages"))
    reading = _Reading(item)
    for message in messages:
        reading.message(message)
    nodes, leaf = reading.tree.nodes()
    yield Conversation(
        source_id=uuid,
        client=CLIENT,
        nodes=nodes,
        leaf=leaf,
        title=string(item.get("name")),
        created_at=moment(item.get("created_at")) or reading.clock.first,
        updated_at=moment(item.get("updated_at")),
        model=string(item.get("model")),
        metadata={"summary": summary} if (summary := string(item.get("summary"))) else {},
        blobs=reading.wire.blobs,
        notes=reading.notes.as_tuple(),
    )


class _Reading:
    def __init__(self, item: Mapping[str, Any]) -> None:
        self.notes = Notes()
        self.clock = Clock(item.get("created_at"))
        self.wire = Wire("anthropic-messages", self.notes)
        self.tree = Tree(self.notes)
        self.model = string(item.get("model"))
        self.last = ""
        self.ends: dict[str, str] = {}  # message → the last entry that it became
        self.calls = 0
        if not self.model:
            self.notes("lost", gettext_noop("The export does not say which model answered."))

    def message(self, message: Mapping[str, Any]) -> None:
        uuid = string(message.get("uuid")) or f"message-{len(self.ends) + 1}"
        at = self.clock.at(message.get("created_at"))
        parent = self._parent(message)
        entries = list(self._answer(message, at) if message.get("sender") == "assistant" else self._input(message, at))
        if not entries:
            self.notes("ignored", gettext_noop("A message with nothing in it was left out."), where=uuid)
        for place, entry in enumerate(entries):
            parent = self.tree.add(f"{uuid}/{place}" if place else uuid, entry, parent=parent)
        self.ends[uuid] = self.last = parent

    def _parent(self, message: Mapping[str, Any]) -> str:
        named = string(message.get("parent_message_uuid"))
        if not named:
            return self.last
        return "" if named == ROOT else self.ends.get(named, named)

    def _input(self, message: Mapping[str, Any], at: datetime) -> Iterator[Entry]:
        parts = list(self._attached(message))
        for entry in self.wire.read([{"role": "user", "content": self._blocks(message)}], at=at):
            if isinstance(entry, ModelInput):
                parts += entry.parts
            else:
                yield entry
        if parts:
            yield ModelInput(at=at, channel=CHANNEL, parts=tuple(parts))

    def _answer(self, message: Mapping[str, Any], at: datetime) -> Iterator[Entry]:
        """One message may hold calls, their results and what was said after them: each in its place."""
        said: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for block in self._blocks(message):
            is_result = block.get("type") == "tool_result"
            if not is_result and results:
                yield from self._written(said, results, at)
                said, results = [], []
            (results if is_result else said).append(block)
        yield from self._written(said, results, at)

    def _written(self, said: list[dict[str, Any]], results: list[dict[str, Any]], at: datetime) -> Iterator[Entry]:
        self._pair(said, results)
        messages = [{"role": "assistant", "content": said}] if said else []
        messages += [{"role": "user", "content": results}] if results else []
        for entry in self.wire.read(messages, at=at):
            if isinstance(entry, ModelOutput):
                yield ModelOutput(at=at, parts=entry.parts, provider="anthropic", model=self.model)
            elif isinstance(entry, ToolResults):
                yield entry

    def _pair(self, said: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
        calls = [block for block in said if block.get("type") == "tool_use"]
        nameless = [block for block in calls if not string(block.get("id"))]
        for call in nameless:
            self.calls += 1
            call["id"] = f"call_{self.calls}"
        known = {string(block.get("tool_use_id")) for block in results}
        open_calls = [call["id"] for call in calls if call["id"] not in known]
        for result in results:
            if not string(result.get("tool_use_id")) and open_calls:
                result["tool_use_id"] = open_calls.pop(0)
        self.notes(
            "repaired",
            gettext_noop("Calls without an id got one, and results were paired by their order."),
            count=len(nameless),
        )

    def _blocks(self, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        blocks = [dict(block) for block in objs(message.get("content"))]
        if not any(_says_something(block) for block in blocks):
            text = string(message.get("text"))
            return [{"type": "text", "text": text}] if text.strip() else []
        return [_plain(block) for block in blocks if _says_something(block)]

    def _attached(self, message: Mapping[str, Any]) -> Iterator[Part]:
        for file in objs(message.get("attachments")):
            yield _attachment(file)
        for file in (*objs(message.get("files")), *objs(message.get("files_v2"))):
            name = string(file.get("file_name")) or string(file.get("name"))
            self.notes("lost", gettext_noop("An attached file is not in the export; its name was kept."), where=name)
            yield Media(media_type=string(file.get("file_type")) or "application/octet-stream", name=name)


def _says_something(block: Mapping[str, Any]) -> bool:
    return block.get("type") != "text" or bool(string(block.get("text")).strip())


def _plain(block: dict[str, Any]) -> dict[str, Any]:
    """The block as the vendor's own wire has it, without what the export adds; others as they are."""
    if string(block.get("type")) not in BLOCKS:
        return block
    known = (
        "type",
        "text",
        "thinking",
        "signature",
        "data",
        "id",
        "name",
        "input",
        "tool_use_id",
        "content",
        "is_error",
    )
    kept = {name: block[name] for name in (*known, "source", "title") if block.get(name) is not None}
    if citations := objs(block.get("citations")):
        kept["citations"] = citations
    return kept


def _attachment(file: Mapping[str, Any]) -> Part:
    """A file whose text is in the export: what the model read."""
    name, text = string(file.get("file_name")), string(file.get("extracted_content"))
    if not text:
        return OtherPart(data={"type": "attachment", "name": name, "size": count(obj(file).get("file_size"))})
    return Text(text=f"[{name or 'attachment'}]\n\n{text}", extra={"attachment": name})
