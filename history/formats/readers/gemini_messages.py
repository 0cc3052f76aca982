"""The messages of Gemini CLI's recordings as entries.

A `gemini` message is one answer with its thoughts and calls, and the calls hold their results. After a resume the same
results stand in a user message of their own, too: those are not taken twice. What people typed to the program instead
of the model (commands, help) and what the program told the model about itself stays out of the context: it is kept as a
log beside the conversation.
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
    Reasoning,
    ResultStatus,
    Summary,
    ToolRequest,
    ToolResult,
    ToolResults,
    Usage,
    text_of,
)
from history.formats.base import gettext_noop
from history.formats.conversations import Clock, Tree, Wire, moment

PROVIDER = "gemini"
NOT_FOR_THE_MODEL = ("/", "?", "<session_context>", "<hook_context>")
STATUSES: dict[str, ResultStatus] = {"success": "success", "error": "failed", "cancelled": "interrupted"}
TWICE = gettext_noop("A repeated tool result was imported once.")
UNANSWERED = gettext_noop("A call has no result in the file. It is marked as interrupted.")
COMMANDS = gettext_noop("Commands and messages of the program are kept as a log, outside the context.")


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
            suffix = "" if entry is entries[-1] else f"/{entry.kind}"
            if isinstance(entry, ToolResults):
                parent = self._results(f"{name}{suffix}", entry, parent)
            elif isinstance(entry, ModelInput):
                parent = self._add_input(f"{name}{suffix}", entry, message, parent)
        return parent

    def _add_input(self, name: str, entry: ModelInput, message: JsonObject, parent: str) -> str:
        text = entry.text.strip()
        if name in self.snapshots:
            summary = Summary(at=entry.at, summary=text, provider=PROVIDER)
            return self._put(name, summary, parent, covers=self._end_of(self.snapshots[name]))
        if text.startswith(NOT_FOR_THE_MODEL):
            self.tree.notes("ignored", COMMANDS)
            return self._put(name, DebugLog(at=entry.at, category="command", message=text), parent)
        shown = _plain(message.get("displayContent"))
        return self._put(name, replace(entry, raw=shown) if shown and shown != entry.text else entry, parent)

    def _end_of(self, name: str) -> str:
        results = f"{name}/results"
        return results if results in self.tree.items else name

    def _results(self, name: str, entry: ToolResults, parent: str) -> str:
        fresh = tuple(result for result in entry.results if result.call_id not in self.answered)
        self.tree.notes("ignored", TWICE, count=len(entry.results) - len(fresh))
        self.answered.update(result.call_id for result in fresh)
        return self._put(name, replace(entry, results=fresh), parent) if fresh else parent

    def _answer(self, name: str, message: JsonObject, at: datetime, parent: str) -> str:
        calls = objs(message.get("toolCalls"))
        requests = _requests(calls)
        entries = self.wire.read([{"role": "model", "parts": _parts(message.get("content"))}], at=at)
        parts: list[Part] = [_thought(thought) for thought in objs(message.get("thoughts"))]
        parts += [part for entry in entries if isinstance(entry, ModelOutput) for part in entry.parts]
        called = {part.call_id for part in parts if isinstance(part, ToolRequest)}
        parts += [request for request in requests if request.call_id not in called]
        if not parts:
            self.tree.notes("ignored", gettext_noop("An empty answer was left out."), where=name)
            return parent
        output = ModelOutput(
            at=at,
            parts=tuple(parts),
            provider=PROVIDER,
            model=string(message.get("model")),
            usage=_usage(obj(message.get("tokens"))),
        )
        parent = self._put(name, output, parent)
        if not calls:
            return parent
        results = tuple(self._result(call, request, at) for call, request in zip(calls, requests, strict=True))
        self.answered.update(request.call_id for request in requests)
        return self._put(f"{name}/results", ToolResults(at=at, results=results), parent)

    def _result(self, call: JsonObject, request: ToolRequest, at: datetime) -> ToolResult:
        content = call.get("result")
        parts = _parts(content)
        read = self.wire.read([{"role": "user", "parts": parts}], at=at) if parts else []
        found = [result for entry in read if isinstance(entry, ToolResults) for result in entry.results]
        more = tuple(part for entry in read if isinstance(entry, ModelInput) for part in entry.parts)
        result_parts = tuple(part for result in found for part in result.parts) + more
        status = STATUSES.get(string(call.get("status")))
        if status is None:
            status = found[0].status if found else "success" if result_parts else "interrupted"
        if not result_parts and status != "success":
            self.tree.notes("repaired", UNANSWERED, where=request.name)
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


def _thought(thought: JsonObject) -> Reasoning:
    subject, description = string(thought.get("subject")), string(thought.get("description"))
    text = "\n\n".join(filter(None, [f"**{subject}**" if subject else "", description]))
    return Reasoning(text=text, provider=PROVIDER)


def _usage(tokens: JsonObject) -> Usage | None:
    if not tokens:
        return None
    thoughts = count(tokens.get("thoughts"))
    return Usage(
        input_tokens=count(tokens.get("input")) + count(tokens.get("tool")),
        output_tokens=count(tokens.get("output")) + thoughts,
        cache_read_tokens=count(tokens.get("cached")),
        reasoning_tokens=thoughts,
        raw=tokens,
    )
