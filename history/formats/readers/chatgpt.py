"""The export of ChatGPT: `conversations.json` in a zip, a list of conversations, each a tree of messages.

Every branch is kept; `current_node` is the leaf. Tool calls are messages with a recipient other than `all` and have no
ids, so a result belongs to the call above it. Pictures and files are beside the list; their names begin with their id.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from history.dialects.json_access import as_count, compact, items, obj, objs, string
from history.dialects.tools import parse_arguments
from history.entries.kinds import Entry, ModelInput, ModelOutput, SystemInstructionSet, ToolResults
from history.entries.values import JsonObject, Media, OtherPart, Part, Reasoning, Text, ToolRequest, ToolResult
from history.formats.base import Conversation, FormatError
from history.formats.conversations import CHANNEL, ConversationReader, instruction, read_each, reasoning
from history.formats.sources import Companion, Reader, Sample, Source
from history.text.lazy import gettext_noop as _
from history.text.media_types import media_type_of

PROVIDER = "openai"
HIDDEN = ("is_visually_hidden_from_conversation", "is_visually_hidden_from_user_message", "is_user_system_message")


def recognises(sample: Sample) -> bool:
    return any(isinstance(item.get("mapping"), Mapping) for item in sample.items)


def _conversation(item: JsonObject, source: Source) -> Conversation:
    mapping = {name: obj(node) for name, node in obj(item.get("mapping")).items()}
    source_id = string(item.get("conversation_id")) or string(item.get("id"))
    if not source_id:
        raise FormatError(_("this conversation has no id"))
    reader = _Messages(item.get("create_time"), source.companion)
    ends: dict[str, str] = {}
    for name in _ordered(mapping):
        parent = string(mapping[name].get("parent"))
        ends[name] = reader.add(name, obj(mapping[name].get("message")), parent=ends.get(parent, parent), above=parent)
    for name, (parent, output) in reader.thoughts.items():  # thoughts without an answer
        reader.tree.add(name, output, parent=parent)
    if not reader.tree.items:
        raise FormatError(_("this conversation has no messages"))
    return reader.conversation(
        source_id,
        leaf=ends.get(string(item.get("current_node")), ""),
        title=string(item.get("title")),
        model=string(item.get("default_model_slug")),
        agent=string(item.get("gizmo_id")),
        metadata={"archived": True} if item.get("is_archived") is True else {},
    )


def _ordered(mapping: Mapping[str, JsonObject]) -> list[str]:
    """Parents before their children, and children in the order in which their parent names them."""
    children = {name: [*filter(string, items(node.get("children")))] for name, node in mapping.items()}
    for name, node in mapping.items():
        children.setdefault(string(node.get("parent")), []).append(name)
    order: list[str] = []
    seen: set[str] = set()
    roots = [name for name, node in mapping.items() if string(node.get("parent")) not in mapping]
    for root in (*roots, *mapping):  # what leads round in a circle is reached from no root
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in seen and name in mapping:
                seen.add(name)
                order.append(name)
                waiting += reversed(children[name])
    return order


class _Messages(ConversationReader):
    def __init__(self, start: object, companion: Companion) -> None:
        super().__init__("ChatGPT", start=start)
        self.companion = companion
        self.calls: dict[str, ToolRequest] = {}  # entry → the call in it that waits for a result
        self.thoughts: dict[str, tuple[str, ModelOutput]] = {}  # message that only thinks → (parent, its thoughts)

    def add(self, name: str, message: JsonObject, *, parent: str, above: str) -> str:
        """Add the entry of a message after `parent`; `above` is the message before. Returns what the next follows."""
        if not message:
            return parent
        at = self.entry_time(message.get("create_time"))
        match obj(message.get("author")).get("role"):
            case "assistant":
                return self._answer(name, message, at, parent, above)
            case "tool":
                return self._result(name, message, at, parent)
            case "system":
                text = "\n\n".join(part.text for part in self._parts(message) if isinstance(part, Text))
                entry: Entry | None = instruction(text, at=at) if text else None
                if text and not self.tree.items:
                    entry = SystemInstructionSet(at=at, instruction=text)
            case _:
                entry = self._input(message, at)
        return self.tree.add(name, entry, parent=parent) if entry else parent

    def _input(self, message: JsonObject, at: datetime) -> Entry | None:
        content = obj(message.get("content"))
        if content.get("content_type") == "user_editable_context":
            texts = [string(content.get(name)) for name in ("user_profile", "user_instructions")]
            text = "\n\n".join(filter(None, texts))
            return SystemInstructionSet(at=at, instruction=text) if text else None
        parts = (*self._parts(message), *self._attached(message))
        if not parts:
            return None
        return ModelInput(at=at, channel=CHANNEL, parts=parts, is_internal=_is_hidden(message))

    def _answer(self, name: str, message: JsonObject, at: datetime, parent: str, above: str) -> str:
        parts: tuple[Part, ...] = tuple(self._parts(message))
        call: ToolRequest | None = None
        recipient = string(message.get("recipient"))
        if recipient not in ("all", ""):
            arguments = "\n\n".join(part.text for part in parts if isinstance(part, Text))
            if parse_arguments(arguments) is None:
                arguments = compact({"input": arguments})
            call = ToolRequest(call_id=f"call_{name}", name=recipient, arguments=arguments)
        thinking = self.thoughts.pop(above, None)
        if not parts and call is None:
            if thinking:
                self.thoughts[name] = thinking
            return parent
        output = ModelOutput(
            at=at,
            parts=(*(thinking[1].parts if thinking else ()), *((call,) if call else parts)),
            provider=PROVIDER,
            model=string(obj(message.get("metadata")).get("model_slug")),
            status="interrupted" if message.get("status") == "in_progress" else "complete",
            is_internal=_is_hidden(message),
        )
        if all(isinstance(part, Reasoning) for part in output.parts):
            self.thoughts[name] = (parent, output)
            return parent
        placed = self.tree.add(name, output, parent=parent)
        if call:
            self.calls[placed] = call
        return placed

    def _result(self, name: str, message: JsonObject, at: datetime, parent: str) -> str:
        parts = tuple(self._parts(message))
        tool = string(obj(message.get("author")).get("name")) or "tool"
        if not parts and parent not in self.calls:
            return parent
        if call := self.calls.get(parent):
            status = "failed" if obj(message.get("content")).get("content_type") == "system_error" else "success"
            result = ToolResult(call_id=call.call_id, name=call.name, status=status, parts=parts)  # type: ignore[arg-type]
            return self.tree.add(name, ToolResults(at=at, results=(result,)), parent=parent)
        above = self.tree.items[parent].entry if parent in self.tree.items else None
        if isinstance(above, ToolResults):  # one call, several messages: all of it is the result
            last = replace(above.results[-1], parts=(*above.results[-1].parts, *parts))
            self.tree.items[parent].entry = replace(above, results=(*above.results[:-1], last))
            return parent
        self.notes("repaired", _("Tool output without a call was kept as an internal message."), where=tool)
        tool_message = ModelInput(at=at, channel=CHANNEL, parts=(Text(text=f"[{tool}]"), *parts), is_internal=True)
        return self.tree.add(name, tool_message, parent=parent)

    def _parts(self, message: JsonObject) -> Iterator[Part]:
        content = obj(message.get("content"))
        match content.get("content_type"):
            case "thoughts":
                for thought in objs(content.get("thoughts")):
                    yield reasoning(string(thought.get("summary")), string(thought.get("content")), provider=PROVIDER)
            case "reasoning_recap":
                return
            case "text" | "multimodal_text" | None:
                for part in items(content.get("parts")):
                    text = part if isinstance(part, str) else string(obj(part).get("text"))
                    if pointer := string(obj(part).get("asset_pointer")):
                        yield self._media(pointer, size=as_count(part.get("size_bytes")))
                    elif text.strip() or (text and not isinstance(part, str)):
                        yield Text(text=text)
                    elif not isinstance(part, str):
                        yield OtherPart(data={"type": "chatgpt_part", "value": dict(obj(part))})
            case kind:
                # Code, the output of a program, a page that was read: each under its own name.
                names = ("title", "url", "text", "result", "content", "summary")
                if text := "\n".join(filter(None, [string(content.get(name)) for name in names])):
                    language = string(content.get("language"))
                    extra = {"language": language} if language not in ("", "unknown") else {}
                    yield Text(text=text, extra=extra)
                elif kind != "model_editable_context":
                    yield OtherPart(data={"type": f"chatgpt_{kind}", "value": dict(content)})

    def _attached(self, message: JsonObject) -> Iterator[Media]:
        shown = compact(obj(message.get("content")).get("parts"))
        for file in objs(obj(message.get("metadata")).get("attachments")):
            name = string(file.get("id"))
            if name and name not in shown:
                kind = string(file.get("mimeType")) or string(file.get("mime_type"))
                yield self._media(name, media_type=kind, name=string(file.get("name")), size=as_count(file.get("size")))

    def _media(self, pointer: str, *, media_type: str = "", name: str = "", size: int = 0) -> Media:
        file_id = pointer.rpartition("://")[2].partition("#")[0]
        file = self.companion(file_id) if file_id else None
        if file is None:
            what = _("The export does not contain a picture or file. Its name was kept.")
            self.notes("lost", what, where=name or file_id)
            return Media(media_type=media_type or "application/octet-stream", name=name or file_id, size=size)
        file_name, content = file
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        kind = media_type_of(content, name=file_name) or media_type or "application/octet-stream"
        return Media(media_type=kind, sha256=sha256, name=name or file_name, size=len(content))


def _is_hidden(message: JsonObject) -> bool:
    return any(obj(message.get("metadata")).get(name) is True for name in HIDDEN)


READER = Reader("chatgpt", recognises, lambda source: read_each(source, lambda item: _conversation(item, source)))
