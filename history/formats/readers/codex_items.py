"""The items of a Codex rollout, gathered into entries: what the model did in a row is one answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from history.dialects.json_access import count, number, obj, objs, parsed, string
from history.entries import (
    LEAVES,
    DebugLog,
    Entry,
    ModelInput,
    ModelOutput,
    Summary,
    SystemInstructionSet,
    Text,
    ToolResult,
    ToolResults,
    Usage,
)
from history.formats.base import Notes, SourceNode, chain_id, gettext_noop
from history.formats.times import Clock
from history.formats.wire import CHANNEL, Wire, instruction

# What the program tells the model about itself, in the person's name.
TOLD = (
    *("<environment_context>", "<ENVIRONMENT_CONTEXT>", "<user_instructions>", "<permissions instructions>"),
    *("# AGENTS.md instructions", "<turn_aborted>", "<skill>", "<subagent_notification>"),
)
FOLDER = re.compile(r"<cwd>([^<]{1,500})</cwd>")
NOTHING_SAID = frozenset({"ghost_snapshot", "compaction", "compaction_summary", "other"})
SPOKEN = {"user_message": "user", "agent_message": "assistant"}


class Items:
    def __init__(self, clock: Clock, notes: Notes) -> None:
        self.clock, self.notes = clock, notes
        self.wire = Wire("openai-responses", notes)
        self.model = self.folder = self.last = ""
        self.entries: list[tuple[str, Entry]] = []
        self.saying: list[Mapping[str, Any]] = []
        self.begun: tuple[str, datetime] = ("", clock.last)
        self.asked_in: dict[str, int] = {}  # call → place of the answer that asked
        self.answered_in: dict[int, int] = {}  # place of an answer → place of its results
        self.results: dict[int, dict[str, ToolResult]] = {}  # place of results → further ones, by call
        self.last_answer: int | None = None  # its place
        self.counted: Any = None
        self.events: list[tuple[str, str, datetime]] = []  # for files that hold nothing else

    def nodes(self) -> list[SourceNode]:
        self.flush()
        if not any(isinstance(entry, ModelInput | ModelOutput) for _, entry in self.entries):
            self._from_events()
        nodes: list[SourceNode] = []
        parent: int | None = None
        for place, more in self.results.items():
            name, entry = self.entries[place]
            if isinstance(entry, ToolResults):
                self.entries[place] = (name, replace(entry, results=(*entry.results, *more.values())))
        for name, entry in self.entries:
            nodes.append(SourceNode(entry=entry, parent=parent, source_id=name))
            parent = parent if entry.kind in LEAVES else len(nodes) - 1
        return nodes

    def instruct(self, text: str) -> None:
        self._put("instructions", SystemInstructionSet(at=self.clock.last, instruction=text))

    # Items.

    def item(self, item: Mapping[str, Any], time: Any, *, told: str) -> None:
        at, kind = self.clock.at(time), string(item.get("type"))
        self.last = chain_id(self.last, told)
        if kind in NOTHING_SAID:
            self.notes("ignored", gettext_noop("An item that is bookkeeping was left out."), where=kind)
        elif kind.endswith("_output"):
            self.flush()
            self._results(item, at)
        elif kind == "message" and item.get("role") != "assistant":
            self.flush()
            self._said(item, at)
        else:
            if not self.saying:
                self.begun = (self.last, at)
            self.saying.append(item)

    def flush(self) -> None:
        """What the model did so far is one answer."""
        items, self.saying = self.saying, []
        name, at = self.begun
        for entry in self.wire.read(items, at=at) if items else ():
            if isinstance(entry, ModelOutput):
                self.asked_in.update({call.call_id: len(self.entries) for call in entry.tool_requests})
                self._put(name, replace(entry, provider="openai", model=self.model))

    def _said(self, item: Mapping[str, Any], at: datetime) -> None:
        for entry in self.wire.read([item], at=at):
            if not isinstance(entry, ModelInput):
                continue
            text = entry.text.lstrip()
            if entry.channel == "system":
                entry = instruction(entry.text, at=at)
            elif text.startswith(TOLD):
                self.notes("ignored", gettext_noop("What the program told the model about itself is internal."))
                entry = replace(entry, is_internal=True)
            if folder := FOLDER.search(text[:10_000]):
                self.folder = self.folder or folder[1]
            self._put(self.last, entry)

    def _results(self, item: Mapping[str, Any], at: datetime) -> None:
        """A result stands with the other results for the same answer, even if something came in between."""
        for entry in self.wire.read([item], at=at):
            if not isinstance(entry, ToolResults):
                continue
            results = tuple(_outcome(result) for result in entry.results)
            asked = self.asked_in.get(results[0].call_id)
            if asked is not None and asked in self.answered_in:
                self._more(self.answered_in[asked], results)
                continue
            if asked is not None:
                self.answered_in[asked] = len(self.entries)
            self._put(self.last, replace(entry, results=results))

    def _more(self, place: int, results: tuple[ToolResult, ...]) -> None:
        first, more = self.entries[place][1], self.results.setdefault(place, {})
        known = {result.call_id for result in first.results} if isinstance(first, ToolResults) else frozenset()
        fresh = [result for result in results if result.call_id not in known and result.call_id not in more]
        self.notes(
            "ignored", gettext_noop("A tool result that stands in the file twice was taken once."), count=not fresh
        )
        more.update({result.call_id: result for result in fresh})

    # What the program wrote down besides.

    def compaction(self, payload: Mapping[str, Any], time: Any) -> None:
        self.flush()
        at, text = self.clock.at(time), string(payload.get("message"))
        self.last = chain_id(self.last, f"compacted {text}")
        if objs(payload.get("replacement_history")):
            self.notes(
                "ignored",
                gettext_noop("What the model sees after a compaction is context and was not taken as history."),
            )
        if text.strip():
            last = len(self.entries)
            self._put(self.last, Summary(at=at, first=1 if last else 0, last=last, summary=text, model=self.model))
        else:
            self.notes(
                "lost", gettext_noop("A compaction without a readable summary: the history before it counts again.")
            )
            self._put(self.last, DebugLog(at=at, category="compacted", message="The context was compacted."))

    def event(self, payload: Mapping[str, Any], time: Any) -> None:
        kind = string(payload.get("type"))
        if kind == "token_count":
            self._count(obj(payload.get("info")))
        elif kind in SPOKEN:
            self.events.append((SPOKEN[kind], string(payload.get("message")), self.clock.at(time)))
        elif kind in ("error", "turn_aborted", "stream_error"):
            self.flush()
            told = string(payload.get("message")) or string(payload.get("reason"))
            self.last = chain_id(self.last, f"{kind} {told}")
            self._put(self.last, DebugLog(at=self.clock.at(time), category=kind, message=told))

    def _count(self, info: Mapping[str, Any]) -> None:
        """The count is that of the newest answer; the same total again is told for the screen only."""
        total, used = info.get("total_token_usage"), obj(info.get("last_token_usage"))
        if not used or total == self.counted:
            return
        self.counted = total
        self.flush()
        if self.last_answer is None:
            return
        name, entry = self.entries[self.last_answer]
        if isinstance(entry, ModelOutput) and entry.usage is None:
            self.entries[self.last_answer] = (name, replace(entry, usage=_usage(used)))

    def _from_events(self) -> None:
        """Some old files tell what was said to the screen alone."""
        for role, text, at in self.events:
            self.last = chain_id(self.last, f"{role} {text}")
            said = (Text(text=text),)
            model = self.model
            self._put(
                self.last,
                ModelInput(at=at, channel=CHANNEL, parts=said)
                if role == "user"
                else ModelOutput(at=at, parts=said, provider="openai", model=model),
            )

    def _put(self, name: str, entry: Entry) -> None:
        if isinstance(entry, ModelOutput):
            self.last_answer = len(self.entries)
        self.entries.append((name, entry))


def _usage(used: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(used.get("input_tokens")),
        output_tokens=count(used.get("output_tokens")),
        cache_read_tokens=count(used.get("cached_input_tokens")),
        reasoning_tokens=count(used.get("reasoning_output_tokens")),
        raw=used,
    )


def _outcome(result: ToolResult) -> ToolResult:
    """The output of a command is JSON inside a text, with its exit code and how long it took."""
    text = result.text
    if not text.startswith("{"):
        return result
    try:
        told = obj(parsed(text))
    except ValueError:
        return result
    facts = obj(told.get("metadata"))
    if not isinstance(told.get("output"), str) or not facts:
        return result
    status = "failed" if facts.get("exit_code") else "success"
    parts = (Text(text=told["output"]),) if told["output"] else ()
    return replace(result, parts=parts, status=status, duration=number(facts.get("duration_seconds")))  # type: ignore[arg-type]
