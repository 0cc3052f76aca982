"""The messages of Gemini CLI's recordings as entries.

A `gemini` message is one answer with its thoughts and calls, and the calls hold their results. After a resume the same
results stand in a user message of their own, too: those are not taken twice. What people typed to the program instead
of the model (commands, help) and what the program told the model about itself stays out of the context: it is kept as a
log beside the conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from history.dialects.json_access import compact, count, items, obj, objs, string
from history.dialects.request_decoder import call_id_for
from history.entries import (
    LEAVES,
    DebugLog,
    Entry,
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
from history.formats.times import Clock, moment
from history.formats.trees import Tree
from history.formats.wire import Wire

PROVIDER = "gemini"
NOT_FOR_THE_MODEL = ("/", "?", "<session_context>", "<hook_context>")
STATUSES: dict[str, ResultStatus] = {"success": "success", "error": "failed", "cancelled": "interrupted"}
TWICE = gettext_noop("A tool result that stands in the file twice was taken once.")
UNANSWERED = gettext_noop("A call has no result in the file; it is marked as interrupted.")
COMMANDS = gettext_noop("What was typed to the program, or told by it, was kept out of the context, as a log.")


class GeminiMessages:
    def __init__(self, tree: Tree, clock: Clock, *, snapshots: Mapping[str, str]) -> None:
        self.tree, self.clock, self.snapshots = tree, clock, snapshots
        self.wire = Wire("gemini-generate", tree.notes)
        self.answered: set[str] = set()

    def add(self, name: str, message: Mapping[str, Any], *, parent: str) -> str:
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

    def _put(self, name: str, entry: Entry, parent: str, **fields: Any) -> str:
        placed = self.tree.add(name, entry, parent=parent, **fields)
        return parent if entry.kind in LEAVES else placed

    def _input(self, name: str, message: Mapping[str, Any], at: datetime, parent: str) -> str:
        said = self.wire.read([{"role": "user", "parts": _parts(message.get("content"))}], at=at)
        for entry in said:
            suffix = "" if entry is said[-1] else f"/{entry.kind}"
            if isinstance(entry, ToolResults):
                parent = self._results(f"{name}{suffix}", entry, parent)
            elif isinstance(entry, ModelInput):
                parent = self._said(f"{name}{suffix}", entry, message, parent)
        return parent

    def _said(self, name: str, entry: ModelInput, message: Mapping[str, Any], parent: str) -> str:
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

    def _answer(self, name: str, message: Mapping[str, Any], at: datetime, parent: str) -> str:
        calls = objs(message.get("toolCalls"))
        requests = _requests(calls)
        said = self.wire.read([{"role": "model", "parts": _parts(message.get("content"))}], at=at)
        parts: list[Part] = [_thought(thought) for thought in objs(message.get("thoughts"))]
        parts += [part for entry in said if isinstance(entry, ModelOutput) for part in entry.parts]
        asked = {part.call_id for part in parts if isinstance(part, ToolRequest)}
        parts += [request for request in requests if request.call_id not in asked]
        if not parts:
            self.tree.notes("ignored", gettext_noop("An answer with nothing in it was left out."), where=name)
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

    def _result(self, call: Mapping[str, Any], asked: ToolRequest, at: datetime) -> ToolResult:
        given = call.get("result")
        parts = _parts(given)
        read = self.wire.read([{"role": "user", "parts": parts}], at=at) if parts else []
        found = [result for entry in read if isinstance(entry, ToolResults) for result in entry.results]
        more = tuple(part for entry in read if isinstance(entry, ModelInput) for part in entry.parts)
        told = tuple(part for result in found for part in result.parts) + more
        status = STATUSES.get(string(call.get("status")))
        if status is None:
            status = found[0].status if found else "success" if told else "interrupted"
        if not told and status != "success":
            self.tree.notes("repaired", UNANSWERED, where=asked.name)
        return ToolResult(
            call_id=asked.call_id,
            name=asked.name,
            status=status,
            parts=told,
            error=text_of(told)[:500] if status == "failed" else "",
            started_at=moment(call.get("timestamp")),
        )


def _requests(calls: list[Mapping[str, Any]]) -> list[ToolRequest]:
    made: dict[str, ToolRequest] = {}
    for call in calls:
        name, arguments = string(call.get("name")) or "unknown", compact(obj(call.get("args")))
        call_id = string(call.get("id"))
        call_id = call_id if call_id and call_id not in made else call_id_for(name, arguments, taken=made)
        made[call_id] = ToolRequest(call_id=call_id, name=name, arguments=arguments)
    return list(made.values())


def _parts(content: Any) -> list[Any]:
    """Content is a text, a part, or a list of both."""
    given = items(content) if isinstance(content, list | tuple) else [content] if content else []
    return [{"text": part} if isinstance(part, str) else part for part in given]


def _plain(content: Any) -> str:
    return "\n".join(string(obj(part).get("text")) for part in _parts(content)).strip()


def _thought(thought: Mapping[str, Any]) -> Reasoning:
    subject, description = string(thought.get("subject")), string(thought.get("description"))
    text = "\n\n".join(filter(None, [f"**{subject}**" if subject else "", description]))
    return Reasoning(text=text, provider=PROVIDER)


def _usage(tokens: Mapping[str, Any]) -> Usage | None:
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
