"""The export of Claude.ai: `conversations.json` in a zip, a list of conversations.

`text` repeats the blocks of `content`, so it counts only where there are none. Ids of tools are sometimes missing: then
results belong to calls in their order. The newer exports say which message follows which.
"""

from collections.abc import Iterator
from datetime import datetime

from history.dialects.json_access import as_count, objs, string
from history.entries.kinds import Entry, ModelInput, ModelOutput, ToolResults
from history.entries.values import JsonDict, JsonObject, Media, OtherPart, Part, Text
from history.formats.base import Conversation, FormatError
from history.formats.conversations import CHANNEL, ConversationReader, read_each
from history.formats.sources import Reader, Sample
from history.text.lazy import gettext_noop as _

ROOT = "00000000-0000-4000-8000-000000000000"
BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image", "document"})
FIELDS = (
    *("type", "text", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "content", "is_error"),
    *("source", "title"),
)


def recognises(sample: Sample) -> bool:
    return any("chat_messages" in item and "uuid" in item for item in sample.items)


def _conversation(item: JsonObject) -> Conversation:
    uuid = string(item.get("uuid"))
    if not uuid:
        raise FormatError(_("this conversation has no uuid"))
    messages = objs(item.get("chat_messages"))
    if not messages:
        raise FormatError(_("this conversation has no messages"))
    reader = _Messages(item)
    for message in messages:
        reader.message(message)
    return reader.conversation(
        uuid,
        title=string(item.get("name")),
        model=reader.model,
        metadata={"summary": summary} if (summary := string(item.get("summary"))) else {},
    )


class _Messages(ConversationReader):
    def __init__(self, item: JsonObject) -> None:
        super().__init__("Claude.ai", "anthropic-messages", start=item.get("created_at"))
        self.model = string(item.get("model"))
        self.last = ""
        self.ends: dict[str, str] = {}  # message → the last entry that it became
        self.calls = 0
        if not self.model:
            self.notes("lost", _("The export does not name the model."))

    def message(self, message: JsonObject) -> None:
        uuid = string(message.get("uuid")) or f"message-{len(self.ends) + 1}"
        at = self.entry_time(message.get("created_at"))
        named = string(message.get("parent_message_uuid"))
        parent = self.last if not named else "" if named == ROOT else self.ends.get(named, named)
        entries = list(self._answer(message, at) if message.get("sender") == "assistant" else self._input(message, at))
        if not entries:
            self.notes("ignored", _("An empty message was left out."), where=uuid)
        for place, entry in enumerate(entries):
            parent = self.tree.add(f"{uuid}/{place}" if place else uuid, entry, parent=parent)
        self.ends[uuid] = self.last = parent

    def _input(self, message: JsonObject, at: datetime) -> Iterator[Entry]:
        parts = list(self._attached(message))
        for entry in self.decode([{"role": "user", "content": self._blocks(message)}], at=at):
            if isinstance(entry, ModelInput):
                parts += entry.parts
            else:
                yield entry
        if parts:
            yield ModelInput(at=at, channel=CHANNEL, parts=tuple(parts))

    def _answer(self, message: JsonObject, at: datetime) -> Iterator[Entry]:
        """One message may have calls, their results and a text after them: each becomes an entry."""
        answer_blocks: list[JsonDict] = []
        results: list[JsonDict] = []
        for block in self._blocks(message):
            is_result = block.get("type") == "tool_result"
            if not is_result and results:
                yield from self._convert(answer_blocks, results, at)
                answer_blocks, results = [], []
            (results if is_result else answer_blocks).append(block)
        yield from self._convert(answer_blocks, results, at)

    def _convert(self, answer_blocks: list[JsonDict], results: list[JsonDict], at: datetime) -> Iterator[Entry]:
        calls = [block for block in answer_blocks if block.get("type") == "tool_use"]
        nameless = [block for block in calls if not string(block.get("id"))]
        for call in nameless:
            self.calls += 1
            call["id"] = f"call_{self.calls}"
        known = {string(block.get("tool_use_id")) for block in results}
        open_calls = [call["id"] for call in calls if call["id"] not in known]
        for result in results:
            if not string(result.get("tool_use_id")) and open_calls:
                result["tool_use_id"] = open_calls.pop(0)
        self.notes("repaired", _("Calls without an id got one. Results were paired by order."), count=len(nameless))
        messages = [{"role": "assistant", "content": answer_blocks}] if answer_blocks else []
        messages += [{"role": "user", "content": results}] if results else []
        for entry in self.decode(messages, at=at):
            if isinstance(entry, ModelOutput):
                yield ModelOutput(at=at, parts=entry.parts, provider="anthropic", model=self.model)
            elif isinstance(entry, ToolResults):
                yield entry

    def _blocks(self, message: JsonObject) -> list[JsonDict]:
        """The blocks as in the vendor's requests, without what the export adds; unknown ones as they are."""
        blocks: list[JsonDict] = []
        for block in objs(message.get("content")):
            kind, citations = block.get("type"), objs(block.get("citations"))
            if kind == "text" and not string(block.get("text")).strip():
                continue
            if string(kind) in BLOCKS:
                block = {name: block[name] for name in FIELDS if block.get(name) is not None}
                block |= {"citations": citations} if citations else {}
            blocks.append(dict(block))
        text = string(message.get("text"))
        return blocks or ([{"type": "text", "text": text}] if text.strip() else [])

    def _attached(self, message: JsonObject) -> Iterator[Part]:
        for file in objs(message.get("attachments")):
            name, text = string(file.get("file_name")), string(file.get("extracted_content"))
            if text:  # what the model read
                yield Text(text=f"[{name or 'attachment'}]\n\n{text}", extra={"attachment": name})
            else:
                yield OtherPart(data={"type": "attachment", "name": name, "size": as_count(file.get("file_size"))})
        for file in (*objs(message.get("files")), *objs(message.get("files_v2"))):
            name = string(file.get("file_name")) or string(file.get("name"))
            self.notes("lost", _("The export does not contain an attached file. Its name was kept."), where=name)
            yield Media(media_type=string(file.get("file_type")) or "application/octet-stream", name=name)


READER = Reader("claude-ai", recognises, lambda source: read_each(source, _conversation))
