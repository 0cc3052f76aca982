"""The messages of Gemini CLI's recordings as entries.

A `gemini` message is one answer with its thoughts and calls, and the calls hold their results. After a resume the same
results are in a user message of their own, too: those are not taken twice. Commands to the program and what it told the
model about itself are kept as a log beside the conversation.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from history.dialects.json_access import compact, count, items, obj, objs, string
from history.dialects.tools import call_id_for
from history.entries import (
    LEAVES,
    DebugLog,
    Entry,
    JsonObject,
    ModelInput,
    ModelOutput,
    Part,
    ResultStatus,
    Summary,
    ToolRequest,
    ToolResult,
    ToolResults,
    Usage,
    text_of,
)
from history.formats.base import gettext_noop
from history.formats.conversations import Clock, Tree, Wire, moment, reasoning

PROVIDER = "gemini"
NOT_FOR_THE_MODEL = ("/", "?", "<session_context>", "<hook_context>")
STATUSES: dict[str, ResultStatus] = {"success": "success", "error": "failed", "cancelled": "interrupted"}


class GeminiMessages:
    def __init__(self, tree: Tree, clock: Clock, *, snapshots: Mapping[str, str]) -> None:
        self.tree, self.clock, self.snapshots = tree, clock, snapshots
        self.wire = Wire("gemini-generate", tree.notes)
        self.answered: set[str] = set()

    def add(self, name: str, message: JsonObject, *, parent: str) -> str:
        """Hang the entries of a message on `parent`; returns what the next message follows."""
        at = self.clock.at(message.get("timestamp"))
        match message.get("type"):
            case "gemini":
                return self._answer(name, message, at, parent)
            case "user":
                return self._input(name, message, at, parent)
            case kind:
                log = DebugLog(at=at, category=string(kind) or "unknown", message=_plain(message.get("content")))
                return self._put(name, log, parent)

    def _put(self, name: str, entry: Entry, parent: str, *, covers: str = "") -> str:
        placed = self.tree.add(name, entry, parent=parent, covers=covers)
        return parent if entry.kind in LEAVES else placed

    def _input(self, name: str, message: JsonObject, at: datetime, parent: str) -> str:
        entries = self.wire.read([{"role": "user", "parts": _parts(message.get("content"))}], at=at)
        for entry in entries:
            entry_name = name if entry is entries[-1] else f"{name}/{entry.kind}"
            if isinstance(entry, ToolResults):
                parent = self._results(entry_name, entry, parent)
            elif isinstance(entry, ModelInput):
                parent = self._add_input(entry_name, entry, message, parent)
        return parent

    def _add_input(self, name: str, entry: ModelInput, message: JsonObject, parent: str) -> str:
        text = entry.text.strip()
        if (covered := self.snapshots.get(name)) is not None:
            summary, results = Summary(at=entry.at, summary=text, provider=PROVIDER), f"{covered}/results"
            return self._put(name, summary, parent, covers=results if results in self.tree.items else covered)
        if text.startswith(NOT_FOR_THE_MODEL):
            what = gettext_noop("Commands and messages of the program are kept as a log, outside the context.")
            self.tree.notes("ignored", what)
            return self._put(name, DebugLog(at=entry.at, category="command", message=text), parent)
        shown = _plain(message.get("displayContent"))
        return self._put(name, replace(entry, raw=shown) if shown and shown != entry.text else entry, parent)

    def _results(self, name: str, entry: ToolResults, parent: str) -> str:
        fresh = tuple(result for result in entry.results if result.call_id not in self.answered)
        what = gettext_noop("A repeated tool result was imported once.")
        self.tree.notes("ignored", what, count=len(entry.results) - len(fresh))
        self.answered.update(result.call_id for result in fresh)
        return self._put(name, replace(entry, results=fresh), parent) if fresh else parent

    def _answer(self, name: str, message: JsonObject, at: datetime, parent: str) -> str:
        calls = objs(message.get("toolCalls"))
        requests = _requests(calls)
        entries = self.wire.read([{"role": "model", "parts": _parts(message.get("content"))}], at=at)
        parts: list[Part] = [
            reasoning(string(thought.get("subject")), string(thought.get("description")), provider=PROVIDER)
            for thought in objs(message.get("thoughts"))
        ]
        parts += [part for entry in entries if isinstance(entry, ModelOutput) for part in entry.parts]
        called = {part.call_id for part in parts if isinstance(part, ToolRequest)}
        parts += [request for request in requests if request.call_id not in called]
        if not parts:
            self.tree.notes("ignored", gettext_noop("An empty answer was left out."), where=name)
            return parent
        usage: Usage | None = None
        if tokens := obj(message.get("tokens")):
            thoughts = count(tokens.get("thoughts"))
            usage = Usage(
                input_tokens=count(tokens.get("input")) + count(tokens.get("tool")),
                output_tokens=count(tokens.get("output")) + thoughts,
                cache_read_tokens=count(tokens.get("cached")),
                reasoning_tokens=thoughts,
                raw=tokens,
            )
        model = string(message.get("model"))
        output = ModelOutput(at=at, parts=tuple(parts), provider=PROVIDER, model=model, usage=usage)
        parent = self._put(name, output, parent)
        if not calls:
            return parent
        results = tuple(self._result(call, request, at) for call, request in zip(calls, requests, strict=True))
        self.answered.update(request.call_id for request in requests)
        return self._put(f"{name}/results", ToolResults(at=at, results=results), parent)

    def _result(self, call: JsonObject, request: ToolRequest, at: datetime) -> ToolResult:
        parts = _parts(call.get("result"))
        read = self.wire.read([{"role": "user", "parts": parts}], at=at) if parts else []
        found = [result for entry in read if isinstance(entry, ToolResults) for result in entry.results]
        more = tuple(part for entry in read if isinstance(entry, ModelInput) for part in entry.parts)
        result_parts = tuple(part for result in found for part in result.parts) + more
        status = STATUSES.get(string(call.get("status")))
        if status is None:
            status = found[0].status if found else "success" if result_parts else "interrupted"
        if not result_parts and status != "success":
            what = gettext_noop("A call has no result in the file. It is marked as interrupted.")
            self.tree.notes("repaired", what, where=request.name)
        return ToolResult(
            call_id=request.call_id,
            name=request.name,
            status=status,
            parts=result_parts,
            error=text_of(result_parts)[:500] if status == "failed" else "",
            started_at=moment(call.get("timestamp")),
        )


def _requests(calls: list[JsonObject]) -> list[ToolRequest]:
    made: dict[str, ToolRequest] = {}
    for call in calls:
        name, arguments = string(call.get("name")) or "unknown", compact(obj(call.get("args")))
        call_id = string(call.get("id"))
        call_id = call_id if call_id and call_id not in made else call_id_for(name, arguments, taken=made)
        made[call_id] = ToolRequest(call_id=call_id, name=name, arguments=arguments)
    return list(made.values())


def _parts(content: object) -> list[object]:
    """Content is a text, a part, or a list of both."""
    content = items(content) if isinstance(content, list | tuple) else [content] if content else []
    return [{"text": part} if isinstance(part, str) else part for part in content]


def _plain(content: object) -> str:
    return "\n".join(string(obj(part).get("text")) for part in _parts(content)).strip()
