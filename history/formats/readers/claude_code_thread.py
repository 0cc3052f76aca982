"""One chain of records of Claude Code's transcripts, made into a tree of entries.

- One answer of the model may be written as several lines with the same `message.id`, each with the same count of
  tokens: they are one entry, counted once.
- Results of tools come in records of their own, one per call, whose parents are the lines of the answer: they are one
  entry after it. A result that is written again is not taken twice.
- A compaction begins a new island: the boundary has no parent, only a logical one. The summary after it stands for what
  came before.
- What the program told the model in the person's name (`isMeta`, command output, reminders) is internal.
"""

from dataclasses import replace

from history.dialects.anthropic_messages.reply_decoder import REASONS, usage_from
from history.dialects.json_access import items, obj, objs, string
from history.entries import DebugLog, JsonObject, ModelInput, ModelOutput, Part, Summary, ToolResult, ToolResults, Usage
from history.formats.base import Notes, SourceNode, gettext_noop
from history.formats.conversations import Clock, Tree, Wire
from history.text.titles import title_from

SYNTHETIC = "<synthetic>"
NOISE = ("<", "Caveat:", "[Request interrupted", "This session is being continued")
TWICE = gettext_noop("A repeated tool result was imported once.")


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
        self.entry_of: dict[str, str] = {}  # record → the entry that what follows it hangs on
        self.outputs: dict[str, str] = {}  # message.id → entry
        self.results: dict[str, str] = {}  # entry with calls → entry with their results
        self.answer_of: dict[str, str] = {}  # and the other way round
        # Entries written over several lines → their parts or results, and the keys of these.
        self.parts: dict[str, tuple[list[Part], set[str]]] = {}
        self.more_results: dict[str, tuple[list[ToolResult], set[str]]] = {}
        self.covered: dict[str, str] = {}  # boundary of a compaction → the last entry before it

    def add(self, record: JsonObject) -> None:
        uuid = string(record.get("uuid"))
        if uuid in self.entry_of:
            self.notes("ignored", gettext_noop("A repeated record was imported once."))
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
        self.entry_of[uuid] = end

    def nodes(self) -> tuple[list[SourceNode], int | None]:
        for name, (parts, _known) in self.parts.items():
            self.tree.replace_entry(name, parts=tuple(parts))
        for name, (results, _known) in self.more_results.items():
            self.tree.replace_entry(name, results=tuple(results))
        self.parts.clear()
        self.more_results.clear()
        return self.tree.nodes()

    def _parent(self, record: JsonObject, uuid: str) -> str:
        """The entry that this record follows; an unknown id leads to a gap."""
        named = string(record.get("parentUuid")) or string(record.get("logicalParentUuid"))
        if named:
            return self.entry_of.get(named, named)
        is_start = record.get("type") == "user" and not _has_results(record)
        return "" if is_start or not self.tree.items else f"before:{uuid}"

    # Messages.

    def _answer(self, record: JsonObject, uuid: str, parent: str) -> str:
        message, at = obj(record.get("message")), self.clock.at(record.get("timestamp"))
        self.records += 1
        entries = self.wire.read([{"role": "assistant", "content": message.get("content")}], at=at)
        parts = tuple(part for entry in entries if isinstance(entry, ModelOutput) for part in entry.parts)
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

    def _longer(self, known: str, parts: tuple[Part, ...], message: JsonObject) -> str:
        """One more line of an answer that has begun. The count of tokens is that of the whole, each time."""
        entry = self.tree.items[known].entry
        if isinstance(entry, ModelOutput):
            if known not in self.parts:
                self.parts[known] = list(entry.parts), {repr(part) for part in entry.parts}
            all_parts, keys = self.parts[known]
            new = [part for part in parts if repr(part) not in keys]
            all_parts += new
            keys.update(map(repr, new))
            usage, end = _larger(entry.usage, _usage(message)), _end(message) or entry.end_reason
            self.tree.replace_entry(known, usage=usage, end_reason=end)
        return self.results.get(known, known)

    def _input(self, record: JsonObject, uuid: str, parent: str) -> str:
        message, at = obj(record.get("message")), self.clock.at(record.get("timestamp"))
        self.records += 1
        entries = self.wire.read([{"role": "user", "content": message.get("content")}], at=at)
        for place, entry in enumerate(entries):
            name = f"{uuid}/{place}" if place else uuid
            if isinstance(entry, ToolResults):
                parent = self._outcome(record, name, entry, parent)
            elif isinstance(entry, ModelInput):
                parent = self._add_input(record, name, entry, parent)
        return parent

    def _add_input(self, record: JsonObject, name: str, entry: ModelInput, parent: str) -> str:
        if record.get("isCompactSummary") is True:
            covers = self.covered.get(parent, parent)
            return self.tree.add(name, Summary(at=entry.at, summary=entry.text), parent=parent, covers=covers)
        text = entry.text.lstrip()
        is_noise = text.startswith(NOISE) and not title_from(text)
        if record.get("isMeta") is True or is_noise:
            self.notes("ignored", gettext_noop("Text that the program wrote in the user’s name is internal."))
            entry = replace(entry, is_internal=True)
        return self.tree.add(name, entry, parent=parent)

    def _queued(self, record: JsonObject, uuid: str, parent: str) -> str:
        """A message that the user sent while the model was working."""
        prompt = obj(record.get("attachment")).get("prompt")
        at = self.clock.at(record.get("timestamp"))
        entries = [
            entry
            for entry in self.wire.read([{"role": "user", "content": prompt}], at=at)
            if isinstance(entry, ModelInput)
        ]
        self.records += bool(entries)
        return self.tree.add(uuid, entries[0], parent=parent) if entries else parent

    # Results.

    def _outcome(self, record: JsonObject, name: str, entry: ToolResults, parent: str) -> str:
        answer = self.entry_of.get(string(record.get("sourceToolAssistantUUID")), parent)
        asking = self.answer_of.get(answer, answer)
        if agent := string(obj(record.get("toolUseResult")).get("agentId")):
            self.agents[agent] = entry.results[0].call_id
        if known := self.results.get(asking):
            self._more(known, entry)
            return known
        above = self.tree.items[asking].entry if asking in self.tree.items else None
        placed = self.tree.add(name, entry, parent=asking if isinstance(above, ModelOutput) else parent)
        if isinstance(above, ModelOutput):
            self.results[asking], self.answer_of[placed] = placed, asking
        return placed

    def _more(self, known: str, entry: ToolResults) -> None:
        before = self.tree.items[known].entry
        if isinstance(before, ToolResults):
            if known not in self.more_results:
                self.more_results[known] = list(before.results), {result.call_id for result in before.results}
            results, keys = self.more_results[known]
            new = [result for result in entry.results if result.call_id not in keys]
            results += new
            keys.update(result.call_id for result in new)
            self.notes("ignored", TWICE, count=len(entry.results) - len(new))

    # Records of the program.

    def _system(self, record: JsonObject, uuid: str, parent: str) -> str:
        kind, text = string(record.get("subtype")), string(record.get("content"))
        if kind == "compact_boundary":
            return self._boundary(record, parent)
        if text:
            at = self.clock.at(record.get("timestamp"))
            self.tree.add(uuid, DebugLog(at=at, category=kind or "system", message=text), parent=parent)
        return parent

    def _boundary(self, record: JsonObject, parent: str) -> str:
        """Note what the summary after it covers: all but the messages that the program kept."""
        kept = items(obj(obj(record.get("compactMetadata")).get("preservedMessages")).get("uuids"))
        first = next((self.entry_of[uuid] for uuid in kept if uuid in self.entry_of), "")
        self.covered[parent] = self.tree.items[first].parent if first in self.tree.items else parent
        return parent


def _has_results(record: JsonObject) -> bool:
    return any(block.get("type") == "tool_result" for block in objs(obj(record.get("message")).get("content")))


def _end(message: JsonObject) -> str:
    return REASONS.get(string(message.get("stop_reason")), "")


def _usage(message: JsonObject) -> Usage | None:
    return usage_from(usage) if (usage := obj(message.get("usage"))) else None


def _larger(one: Usage | None, other: Usage | None) -> Usage | None:
    """Lines of one answer repeat its usage; an early line may have a smaller one."""
    if one is None or other is None:
        return one or other
    return other if other.output_tokens >= one.output_tokens else one
