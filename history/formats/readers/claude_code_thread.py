"""One chain of records of Claude Code's transcripts, made into a tree of entries.

- One answer of the model may be written as several lines with the same `message.id`, each with the same count of
  tokens: they are one entry, counted once.
- Results of tools come in records of their own, one per call, whose parents are the lines of the answer: they are one
  entry after it. A result that is written again is not taken twice.
- A compaction begins a new island: the boundary has no parent, only a logical one. The summary after it stands for what
  came before.
- What the program told the model in the person's name (`isMeta`, command output, reminders) is internal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from history.dialects.anthropic_messages.replies import REASONS, usage_from
from history.dialects.json_access import items, obj, objs, string
from history.entries import DebugLog, ModelInput, ModelOutput, Summary, ToolResults, Usage
from history.formats.base import Notes, SourceNode, gettext_noop
from history.formats.times import Clock
from history.formats.trees import Tree
from history.formats.wire import Wire
from history.text.titles import title_from

SYNTHETIC = "<synthetic>"
NOISE = ("<", "Caveat:", "[Request interrupted", "This session is being continued")
TWICE = gettext_noop("A tool result that stands in the file twice was taken once.")


class Thread:
    """Records come in with `add`; `nodes` gives the tree, once."""

    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.clock = Clock()
        self.wire = Wire("anthropic-messages", notes)
        self.tree = Tree(notes)
        self.records = 0
        self.agent = ""
        self.agents: dict[str, str] = {}  # subagent → the call that started it
        self.stands_for: dict[str, str] = {}  # record → the entry that what follows it hangs on
        self.outputs: dict[str, str] = {}  # message.id → entry
        self.results: dict[str, str] = {}  # entry with calls → entry with their results
        self.asked: dict[str, str] = {}  # and the other way round
        self.grown: dict[
            str, tuple[list[Any], set[str]]
        ] = {}  # entry → its parts or results, and what they are known by
        self.covered: dict[str, str] = {}  # boundary of a compaction → the last entry before it

    def add(self, record: Mapping[str, Any]) -> None:
        uuid = string(record.get("uuid"))
        if uuid in self.stands_for:
            self.notes("ignored", gettext_noop("A record that stands in the file twice was taken once."))
            return
        self.agent = self.agent or string(record.get("agentName"))
        parent = self._parent(record, uuid)
        match record.get("type"):
            case "assistant":
                end = self._answer(record, uuid, parent)
            case "user":
                end = self._input(record, uuid, parent)
            case "system":
                end = self._system(record, uuid, parent)
            case "attachment" if obj(record.get("attachment")).get("type") == "queued_command":
                end = self._queued(record, uuid, parent)
            case _:
                end = parent
        self.stands_for[uuid] = end

    def nodes(self) -> tuple[list[SourceNode], int | None]:
        for name, (grown, _known) in self.grown.items():
            entry = self.tree.items[name].entry
            if isinstance(entry, ModelOutput):
                self.tree.items[name].entry = replace(entry, parts=tuple(grown))
            elif isinstance(entry, ToolResults):
                self.tree.items[name].entry = replace(entry, results=tuple(grown))
        self.grown.clear()
        return self.tree.nodes()

    def _parent(self, record: Mapping[str, Any], uuid: str) -> str:
        """The entry that this record follows; an id that no entry has where it is missing: then there is a gap."""
        named = string(record.get("parentUuid")) or string(record.get("logicalParentUuid"))
        if named:
            return self.stands_for.get(named, named)
        is_start = record.get("type") == "user" and not _has_results(record)
        return "" if is_start or not self.tree.items else f"before:{uuid}"

    # What was said.

    def _answer(self, record: Mapping[str, Any], uuid: str, parent: str) -> str:
        message, at = obj(record.get("message")), self.clock.at(record.get("timestamp"))
        self.records += 1
        said = self.wire.read([{"role": "assistant", "content": message.get("content")}], at=at)
        parts = tuple(part for entry in said if isinstance(entry, ModelOutput) for part in entry.parts)
        name = string(message.get("id"))
        if known := self.outputs.get(name):
            return self._longer(known, parts, message)
        if not parts:
            return parent
        output = ModelOutput(
            at=at,
            parts=parts,
            provider="anthropic",
            model=string(message.get("model")),
            end_reason=_end(message),
            usage=_usage(message),
            request_id=string(record.get("requestId")),
        )
        if record.get("isApiErrorMessage") is True:
            output = replace(output, parts=(), status="failed", error=output.text, model="", usage=None)
        elif output.model == SYNTHETIC:
            output = replace(output, model="", usage=None, is_internal=True)
        placed = self.tree.add(uuid, output, parent=parent)
        if name:
            self.outputs[name] = placed
        return placed

    def _longer(self, known: str, parts: tuple[Any, ...], message: Mapping[str, Any]) -> str:
        """One more line of an answer that has begun. The count of tokens is that of the whole, each time."""
        entry = self.tree.items[known].entry
        if isinstance(entry, ModelOutput):
            if known not in self.grown:
                self.grown[known] = list(entry.parts), {repr(part) for part in entry.parts}
            grown, there = self.grown[known]
            fresh = [part for part in parts if repr(part) not in there]
            grown += fresh
            there.update(map(repr, fresh))
            usage, end = _larger(entry.usage, _usage(message)), _end(message) or entry.end_reason
            self.tree.items[known].entry = replace(entry, usage=usage, end_reason=end)
        return self.results.get(known, known)

    def _input(self, record: Mapping[str, Any], uuid: str, parent: str) -> str:
        message, at = obj(record.get("message")), self.clock.at(record.get("timestamp"))
        self.records += 1
        said = self.wire.read([{"role": "user", "content": message.get("content")}], at=at)
        for place, entry in enumerate(said):
            name = f"{uuid}/{place}" if place else uuid
            if isinstance(entry, ToolResults):
                parent = self._outcome(record, name, entry, parent)
            elif isinstance(entry, ModelInput):
                parent = self._said(record, name, entry, parent)
        return parent

    def _said(self, record: Mapping[str, Any], name: str, entry: ModelInput, parent: str) -> str:
        if record.get("isCompactSummary") is True:
            covers = self.covered.get(parent, parent)
            return self.tree.add(name, Summary(at=entry.at, summary=entry.text), parent=parent, covers=covers)
        text = entry.text.lstrip()
        is_noise = text.startswith(NOISE) and not title_from(text)
        if record.get("isMeta") is True or is_noise:
            self.notes("ignored", gettext_noop("What the program said in the person's name is internal."))
            entry = replace(entry, is_internal=True)
        return self.tree.add(name, entry, parent=parent)

    def _queued(self, record: Mapping[str, Any], uuid: str, parent: str) -> str:
        """Something that the person said while the model was at work."""
        prompt = obj(record.get("attachment")).get("prompt")
        at = self.clock.at(record.get("timestamp"))
        entries = [
            entry
            for entry in self.wire.read([{"role": "user", "content": prompt}], at=at)
            if isinstance(entry, ModelInput)
        ]
        self.records += bool(entries)
        return self.tree.add(uuid, entries[0], parent=parent) if entries else parent

    # What tools gave back.

    def _outcome(self, record: Mapping[str, Any], name: str, entry: ToolResults, parent: str) -> str:
        asked = self.stands_for.get(string(record.get("sourceToolAssistantUUID")), parent)
        asking = self.asked.get(asked, asked)
        if agent := string(obj(record.get("toolUseResult")).get("agentId")):
            self.agents[agent] = entry.results[0].call_id
        if known := self.results.get(asking):
            self._more(known, entry)
            return known
        above = self.tree.items[asking].entry if asking in self.tree.items else None
        placed = self.tree.add(name, entry, parent=asking if isinstance(above, ModelOutput) else parent)
        if isinstance(above, ModelOutput):
            self.results[asking], self.asked[placed] = placed, asking
        return placed

    def _more(self, known: str, entry: ToolResults) -> None:
        before = self.tree.items[known].entry
        if isinstance(before, ToolResults):
            if known not in self.grown:
                self.grown[known] = list(before.results), {result.call_id for result in before.results}
            grown, there = self.grown[known]
            fresh = [result for result in entry.results if result.call_id not in there]
            grown += fresh
            there.update(result.call_id for result in fresh)
            self.notes("ignored", TWICE, count=len(entry.results) - len(fresh))

    # What the program wrote down for itself.

    def _system(self, record: Mapping[str, Any], uuid: str, parent: str) -> str:
        kind, text = string(record.get("subtype")), string(record.get("content"))
        if kind == "compact_boundary":
            return self._boundary(record, parent)
        if text:
            at = self.clock.at(record.get("timestamp"))
            self.tree.add(uuid, DebugLog(at=at, category=kind or "system", message=text), parent=parent)
        return parent

    def _boundary(self, record: Mapping[str, Any], parent: str) -> str:
        """What the summary after it stands for; not for messages that the program took over as they were."""
        kept = items(obj(obj(record.get("compactMetadata")).get("preservedMessages")).get("uuids"))
        first = next((self.stands_for[uuid] for uuid in kept if uuid in self.stands_for), "")
        self.covered[parent] = self.tree.items[first].parent if first in self.tree.items else parent
        return parent


def _has_results(record: Mapping[str, Any]) -> bool:
    return any(block.get("type") == "tool_result" for block in objs(obj(record.get("message")).get("content")))


def _end(message: Mapping[str, Any]) -> str:
    return REASONS.get(string(message.get("stop_reason")), "")


def _usage(message: Mapping[str, Any]) -> Usage | None:
    return usage_from(usage) if (usage := obj(message.get("usage"))) else None


def _larger(one: Usage | None, other: Usage | None) -> Usage | None:
    """Lines of one answer repeat its count; while it was being written, an earlier line may say less."""
    if one is None or other is None:
        return one or other
    return other if other.output_tokens >= one.output_tokens else one
