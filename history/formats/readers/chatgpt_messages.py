"""The messages of ChatGPT's export as entries of a tree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from history.dialects.json_access import compact, count, items, obj, objs, parsed, string
from history.entries import (
    Entry,
    Media,
    ModelInput,
    ModelOutput,
    OtherPart,
    Part,
    Reasoning,
    SystemInstructionSet,
    Text,
    ToolRequest,
    ToolResult,
    ToolResults,
)
from history.formats.base import gettext_noop
from history.formats.times import Clock
from history.formats.trees import Tree
from history.formats.wire import CHANNEL, instruction
from history.text.media_types import media_type_of

PROVIDER = "openai"
NO_FILE = gettext_noop("A picture or file is not in the export; its name was kept.")
ADDRESSED_TO_ALL = ("all", "")


class ChatGptMessages:
    def __init__(self, tree: Tree, clock: Clock, *, companion: Callable[[str], tuple[str, bytes] | None]) -> None:
        self.tree, self.clock, self.companion = tree, clock, companion
        self.blobs: dict[str, bytes] = {}
        self.calls: dict[str, ToolRequest] = {}  # entry → the call in it that waits for a result
        self.thoughts: dict[str, tuple[str, ModelOutput]] = {}  # message that only thinks → (parent, its thoughts)

    def add(self, name: str, message: Mapping[str, Any], *, parent: str, above: str) -> str:
        """Hang the entry of a message on `parent`; `above` is the message before it. Returns what the next follows."""
        if not message:
            return parent
        at = self.clock.at(message.get("create_time"))
        role = string(obj(message.get("author")).get("role"))
        if role == "assistant":
            return self._answer(name, message, at, parent, above)
        if role == "tool":
            return self._result(name, message, at, parent)
        entry = self._instruction(message, at) if role == "system" else self._input(message, at)
        return self.tree.add(name, entry, parent=parent) if entry else parent

    def finish(self) -> None:
        """Thoughts that led to nothing stand alone."""
        for name, (parent, output) in self.thoughts.items():
            self.tree.add(name, output, parent=parent)

    # Who speaks.

    def _input(self, message: Mapping[str, Any], at: datetime) -> Entry | None:
        content = obj(message.get("content"))
        if content.get("content_type") == "user_editable_context":
            texts = [string(content.get(name)) for name in ("user_profile", "user_instructions")]
            text = "\n\n".join(filter(None, texts))
            return SystemInstructionSet(at=at, instruction=text) if text else None
        parts = (*self._parts(message), *self._attached(message))
        if not parts:
            return None
        return ModelInput(at=at, channel=CHANNEL, parts=parts, is_internal=_is_hidden(message))

    def _instruction(self, message: Mapping[str, Any], at: datetime) -> Entry | None:
        text = "\n\n".join(part.text for part in self._parts(message) if isinstance(part, Text))
        if not text:
            return None
        is_first = not self.tree.items
        return SystemInstructionSet(at=at, instruction=text) if is_first else instruction(text, at=at)

    def _answer(self, name: str, message: Mapping[str, Any], at: datetime, parent: str, above: str) -> str:
        parts: tuple[Part, ...] = tuple(self._parts(message))
        call = _call(name, message, parts)
        thinking = self.thoughts.pop(above, None)
        if not parts and call is None:
            if thinking:
                self.thoughts[name] = thinking
            return parent
        said = ModelOutput(
            at=at,
            parts=(*(thinking[1].parts if thinking else ()), *((call,) if call else parts)),
            provider=PROVIDER,
            model=string(obj(message.get("metadata")).get("model_slug")),
            status="interrupted" if message.get("status") == "in_progress" else "complete",
            is_internal=_is_hidden(message),
        )
        if all(isinstance(part, Reasoning) for part in said.parts):
            self.thoughts[name] = (parent, said)
            return parent
        placed = self.tree.add(name, said, parent=parent)
        if call:
            self.calls[placed] = call
        return placed

    def _result(self, name: str, message: Mapping[str, Any], at: datetime, parent: str) -> str:
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
        self.tree.notes(
            "repaired",
            gettext_noop("What a tool said without being called was kept as an internal message."),
            where=tool,
        )
        told = ModelInput(at=at, channel=CHANNEL, parts=(Text(text=f"[{tool}]"), *parts), is_internal=True)
        return self.tree.add(name, told, parent=parent)

    # What they say.

    def _parts(self, message: Mapping[str, Any]) -> Iterator[Part]:
        content = obj(message.get("content"))
        match content.get("content_type"):
            case "thoughts":
                for thought in objs(content.get("thoughts")):
                    yield _thought(thought)
            case "reasoning_recap":
                return
            case "text" | "multimodal_text" | None:
                for part in items(content.get("parts")):
                    if (read := self._part(part)) is not None:
                        yield read
            case kind:
                if text := _text(content):
                    language = string(content.get("language"))
                    extra = {"language": language} if language not in ("", "unknown") else {}
                    yield Text(text=text, extra=extra)
                elif kind != "model_editable_context":
                    yield OtherPart(data={"type": f"chatgpt_{kind}", "value": dict(content)})

    def _part(self, part: Any) -> Part | None:
        if isinstance(part, str):
            return Text(text=part) if part.strip() else None
        found = obj(part)
        if pointer := string(found.get("asset_pointer")):
            return self._media(pointer, size=count(found.get("size_bytes")))
        text = string(found.get("text"))
        return Text(text=text) if text else OtherPart(data={"type": "chatgpt_part", "value": dict(found)})

    def _attached(self, message: Mapping[str, Any]) -> Iterator[Media]:
        shown = compact(obj(message.get("content")).get("parts"))
        for file in objs(obj(message.get("metadata")).get("attachments")):
            name = string(file.get("id"))
            if name and name not in shown:
                kind = string(file.get("mimeType")) or string(file.get("mime_type"))
                yield self._media(name, media_type=kind, name=string(file.get("name")), size=count(file.get("size")))

    def _media(self, pointer: str, *, media_type: str = "", name: str = "", size: int = 0) -> Media:
        file_id = pointer.rpartition("://")[2].partition("#")[0]
        found = self.companion(file_id) if file_id else None
        if found is None:
            self.tree.notes("lost", NO_FILE, where=name or file_id)
            return Media(media_type=media_type or "application/octet-stream", name=name or file_id, size=size)
        file_name, content = found
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        kind = media_type_of(content, name=file_name) or media_type or "application/octet-stream"
        return Media(media_type=kind, sha256=sha256, name=name or file_name, size=len(content))


def _call(name: str, message: Mapping[str, Any], parts: tuple[Part, ...]) -> ToolRequest | None:
    recipient = string(message.get("recipient"))
    if recipient in ADDRESSED_TO_ALL:
        return None
    text = "\n\n".join(part.text for part in parts if isinstance(part, Text))
    return ToolRequest(call_id=f"call_{name}", name=recipient, arguments=_arguments(text))


def _arguments(text: str) -> str:
    try:
        return text if isinstance(parsed(text), Mapping) else compact({"input": text})
    except ValueError:
        return compact({"input": text})


def _thought(thought: Mapping[str, Any]) -> Reasoning:
    summary, content = string(thought.get("summary")), string(thought.get("content"))
    return Reasoning(text="\n\n".join(filter(None, [f"**{summary}**" if summary else "", content])), provider=PROVIDER)


def _text(content: Mapping[str, Any]) -> str:
    """Code, the output of a program, a page that was read: each under its own name."""
    given = [string(content.get(name)) for name in ("title", "url", "text", "result", "content", "summary")]
    return "\n".join(filter(None, given))


def _is_hidden(message: Mapping[str, Any]) -> bool:
    metadata = obj(message.get("metadata"))
    return any(
        metadata.get(name) is True
        for name in (
            "is_visually_hidden_from_conversation",
            "is_visually_hidden_from_user_message",
            "is_user_system_message",
        )
    )
