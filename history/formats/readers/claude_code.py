"""Transcripts of Claude Code: one record per line, each with a `uuid` and the `parentUuid` of what it follows.

Older files also hold the side chains of subagents, which are sessions of their own here; newer ones have a file for
each (`agent-*.jsonl`). Several lines with the same `message.id` are one answer, counted once. Results of tools come in
records of their own, one per call, whose parents are the lines of the answer: they are one entry after it. A compaction
begins a new island; the summary after it covers what came before. What the program told the model in the user's
name (`isMeta`, command output, reminders) is internal.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from history.dialects.anthropic_messages.reply_reader import REASONS, usage_from
from history.dialects.json_access import items, obj, objs, string
from history.entries import DebugLog, JsonObject, ModelInput, ModelOutput, Part, Summary, ToolResults, Usage
from history.formats.base import Conversation, FormatError, Notes
from history.formats.conversations import ConversationReader
from history.formats.sources import Reader, Sample, Source
from history.text.lazy import gettext_noop as _
from history.text.titles import title_from

TITLES = ("customTitle", "aiTitle", "summary")  # in order of preference
SYNTHETIC = "<synthetic>"
NOISE = ("<", "Caveat:", "[Request interrupted", "This session is being continued")


def recognises(sample: Sample) -> bool:
    return sample.shape in ("lines", "object") and any(_is_record(item) for item in sample.items)


def _is_record(item: JsonObject) -> bool:
    if item.get("type") == "summary":
        return "leafUuid" in item
    return isinstance(item.get("type"), str) and "uuid" in item and ("sessionId" in item or "parentUuid" in item)


def read(source: Source) -> Iterator[Conversation]:
    transcript = _Transcript()
    for record in source.records(transcript.notes):
        transcript.accept(record)
    yield from transcript.conversations(PurePosixPath(source.name).stem)


class _Transcript:
    def __init__(self) -> None:
        self.notes = Notes()
        self.threads = {"": Thread(self.notes)}  # the main one, and the side chains of subagents
        self.side_of: dict[str, str] = {}  # record of a side chain → its side chain, for records without its id
        self.titles: dict[str, str] = {}
        self.sessions: dict[str, None] = {}
        self.facts: dict[str, str] = {}

    def accept(self, record: JsonObject) -> None:
        self.titles.update({name: title for name in TITLES if (title := string(record.get(name)))})
        if session := string(record.get("sessionId")):
            self.sessions[session] = None
        uuid = string(record.get("uuid"))
        if not uuid:
            return
        for name in ("cwd", "gitBranch", "version"):
            self.facts.setdefault(name, string(record.get(name)))
        side = ""
        if record.get("isSidechain") is True:
            side = string(record.get("agentId")) or self.side_of.get(string(record.get("parentUuid"))) or uuid
            self.side_of[uuid] = side
        if side not in self.threads:
            self.threads[side] = Thread(Notes())
        self.threads[side].add(record)

    def conversations(self, file_name: str) -> Iterator[Conversation]:
        session = file_name if file_name in self.sessions else next(reversed(self.sessions), "")
        if not session:
            raise FormatError(_("no record names its session"))
        main = self.threads.pop("")
        if main.records:
            title = next((self.titles[name] for name in TITLES if name in self.titles), "")
            yield self._conversation(main, session, title=title)
        elif not self.threads:
            raise FormatError(_("this conversation has no messages"))
        calls = main.agents if main.records else {}
        for side, thread in self.threads.items():
            yield self._conversation(thread, f"{session}/{side}", parent_id=session, parent_call=calls.get(side, ""))

    def _conversation(self, thread: "Thread", source_id: str, **fields: str) -> Conversation:
        thread.end()
        return thread.conversation(
            source_id,
            workspace=self.facts.get("cwd", ""),
            agent=thread.agent,
            metadata={name: self.facts[name] for name in ("gitBranch", "version") if self.facts.get(name)},
            **fields,
        )


class Thread(ConversationReader):
    """One chain of records as a tree of entries. Records come in with `add`, and `end` completes the answers."""

    def __init__(self, notes: Notes) -> None:
        super().__init__("Claude Code", "anthropic-messages", notes=notes)
        self.records = 0
        self.agent = ""
        self.agents: dict[str, str] = {}  # subagent → the call that started it
        self.entry_of: dict[str, str] = {}  # record → the entry that what follows it hangs on
        self.outputs: dict[str, str] = {}  # message.id → entry
        self.results: dict[str, str] = {}  # entry with calls → entry with their results
        self.answer_of: dict[str, str] = {}  # and the other way round
        self.parts: dict[str, tuple[list[Part], set[str]]] = {}  # answer over several lines → its parts and their keys
        self.covered: dict[str, str] = {}  # boundary of a compaction → the last entry before it

    def add(self, record: JsonObject) -> None:
        uuid = string(record.get("uuid"))
        if uuid in self.entry_of:
            self.notes("ignored", _("A repeated record was imported once."))
            return
        self.agent = self.agent or string(record.get("agentName"))
        parent = self._parent(record, uuid)
        match record.get("type"):
            case "assistant":
                parent = self._answer(record, uuid, parent)
            case "user":
                parent = self._input(record, uuid, parent)
            case "system":
                parent = self._system(record, uuid, parent)
            case "attachment" if obj(record.get("attachment")).get("type") == "queued_command":
                parent = self._queued(record, uuid, parent)
        self.entry_of[uuid] = parent

    def end(self) -> None:
        for name, (parts, _known) in self.parts.items():
            self.tree.replace_entry(name, parts=tuple(parts))

    def _parent(self, record: JsonObject, uuid: str) -> str:
        """The entry that this record follows; an unknown id leads to a gap."""
        if named := string(record.get("parentUuid")) or string(record.get("logicalParentUuid")):
            return self.entry_of.get(named, named)
        blocks = objs(obj(record.get("message")).get("content"))
        has_results = any(block.get("type") == "tool_result" for block in blocks)
        is_start = record.get("type") == "user" and not has_results
        return "" if is_start or not self.tree.items else f"before:{uuid}"

    def _answer(self, record: JsonObject, uuid: str, parent: str) -> str:
        message, at = obj(record.get("message")), self.entry_time(record.get("timestamp"))
        self.records += 1
        entries = self.decode([{"role": "assistant", "content": message.get("content")}], at=at)
        parts = tuple(part for entry in entries if isinstance(entry, ModelOutput) for part in entry.parts)
        end_reason = REASONS.get(string(message.get("stop_reason")), "")
        usage = usage_from(tokens) if (tokens := obj(message.get("usage"))) else None
        name = string(message.get("id"))
        if known := self.outputs.get(name):
            self._add_parts(known, parts, usage, end_reason)
            return self.results.get(known, known)
        if not parts:
            return parent
        output = ModelOutput(
            at=at,
            parts=parts,
            provider="anthropic",
            model=string(message.get("model")),
            end_reason=end_reason,
            usage=usage,
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

    def _add_parts(self, known: str, parts: tuple[Part, ...], usage: Usage | None, end_reason: str) -> None:
        """One more line of an answer that has begun. Its usage is that of the whole; an early one may be smaller."""
        entry = self.tree.items[known].entry
        if not isinstance(entry, ModelOutput):
            return
        if known not in self.parts:
            self.parts[known] = list(entry.parts), {repr(part) for part in entry.parts}
        all_parts, keys = self.parts[known]
        new = [part for part in parts if repr(part) not in keys]
        all_parts += new
        keys.update(map(repr, new))
        before = entry.usage
        if usage is None or (before is not None and before.output_tokens > usage.output_tokens):
            usage = before
        self.tree.replace_entry(known, usage=usage, end_reason=end_reason or entry.end_reason)

    def _input(self, record: JsonObject, uuid: str, parent: str) -> str:
        message, at = obj(record.get("message")), self.entry_time(record.get("timestamp"))
        self.records += 1
        entries = self.decode([{"role": "user", "content": message.get("content")}], at=at)
        for place, entry in enumerate(entries):
            name = f"{uuid}/{place}" if place else uuid
            if isinstance(entry, ToolResults):
                parent = self._results(record, name, entry, parent)
            elif isinstance(entry, ModelInput):
                parent = self._add_input(record, name, entry, parent)
        return parent

    def _add_input(self, record: JsonObject, name: str, entry: ModelInput, parent: str) -> str:
        if record.get("isCompactSummary") is True:
            covers = self.covered.get(parent, parent)
            return self.tree.add(name, Summary(at=entry.at, summary=entry.text), parent=parent, covers=covers)
        text = entry.text.lstrip()
        if record.get("isMeta") is True or (text.startswith(NOISE) and not title_from(text)):
            self.notes("ignored", _("Text that the program wrote in the user’s name is internal."))
            entry = replace(entry, is_internal=True)
        return self.tree.add(name, entry, parent=parent)

    def _queued(self, record: JsonObject, uuid: str, parent: str) -> str:
        """A message that the user sent while the model was working."""
        prompt = obj(record.get("attachment")).get("prompt")
        at = self.entry_time(record.get("timestamp"))
        for entry in self.decode([{"role": "user", "content": prompt}], at=at):
            if isinstance(entry, ModelInput):
                self.records += 1
                return self.tree.add(uuid, entry, parent=parent)
        return parent

    def _results(self, record: JsonObject, name: str, entry: ToolResults, parent: str) -> str:
        answer = self.entry_of.get(string(record.get("sourceToolAssistantUUID")), parent)
        asking = self.answer_of.get(answer, answer)
        if agent := string(obj(record.get("toolUseResult")).get("agentId")):
            self.agents[agent] = entry.results[0].call_id
        if known := self.results.get(asking):
            self.tree.add_results(known, entry.results)
            return known
        above = self.tree.items[asking].entry if asking in self.tree.items else None
        placed = self.tree.add(name, entry, parent=asking if isinstance(above, ModelOutput) else parent)
        if isinstance(above, ModelOutput):
            self.results[asking], self.answer_of[placed] = placed, asking
        return placed

    def _system(self, record: JsonObject, uuid: str, parent: str) -> str:
        """A record of the program. Of a compaction, note what the summary after it covers."""
        kind, text = string(record.get("subtype")), string(record.get("content"))
        if kind == "compact_boundary":  # all but the messages that the program kept
            kept = items(obj(obj(record.get("compactMetadata")).get("preservedMessages")).get("uuids"))
            first = next((self.entry_of[uuid] for uuid in kept if uuid in self.entry_of), "")
            self.covered[parent] = self.tree.items[first].parent if first in self.tree.items else parent
        elif text:
            at = self.entry_time(record.get("timestamp"))
            return self.tree.add(uuid, DebugLog(at=at, category=kind or "system", message=text), parent=parent)
        return parent


READER = Reader("claude-code", recognises, read)
