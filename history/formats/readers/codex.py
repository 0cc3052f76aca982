"""Rollouts of Codex: one item of OpenAI Responses per line. What the model did in a row is one answer.

The newest files wrap each item (`{timestamp, type, payload}`); older ones have bare items after a line about the
session. `event_msg` repeats items for the screen, and counts tokens. `compacted` holds a summary of what came before;
its `replacement_history` is context, not history.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from history.dialects.json_access import as_count, as_float, compact, obj, objs, parse_json, string
from history.entries.kinds import DebugLog, Entry, ModelInput, ModelOutput, Summary, SystemInstructionSet, ToolResults
from history.entries.values import JsonObject, Text, ToolResult, Usage
from history.formats.base import Conversation, FormatError, chain_id
from history.formats.conversations import CHANNEL, ConversationReader, instruction
from history.formats.sources import Reader, Sample, Source
from history.text.lazy import gettext_noop as _

WRAPPED = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
BARE = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})
# What the program tells the model about itself, in the user's name.
INTERNAL = (
    *("<environment_context>", "<ENVIRONMENT_CONTEXT>", "<user_instructions>", "<permissions instructions>"),
    *("# AGENTS.md instructions", "<turn_aborted>", "<skill>", "<subagent_notification>"),
)
FOLDER = re.compile(r"<cwd>([^<]{1,500})</cwd>")
BOOKKEEPING = frozenset({"ghost_snapshot", "compaction", "compaction_summary", "other"})


def recognises(sample: Sample) -> bool:
    if sample.shape not in ("lines", "object"):
        return False
    if any(string(item.get("type")) in WRAPPED and isinstance(item.get("payload"), Mapping) for item in sample.items):
        return True
    is_state = any(item.get("record_type") == "state" for item in sample.items)
    has_items = any(string(item.get("type")) in BARE and "uuid" not in item for item in sample.items)
    return has_items and (is_state or _is_meta(sample.first))


def _is_meta(item: JsonObject) -> bool:
    return "type" not in item and "id" in item and "timestamp" in item


def read(source: Source) -> Iterator[Conversation]:
    rollout = _Rollout()
    for line in source.records(rollout.notes):
        rollout.accept(line)
    yield rollout.end()


class _Rollout(ConversationReader):
    def __init__(self) -> None:
        super().__init__("Codex", "openai-responses")
        self.meta: JsonObject = {}
        self.model = self.folder = ""
        self.item_id = ""  # derived from all items so far
        self.parent = ""  # the entry that the next one follows
        self.pending: list[JsonObject] = []  # what the model did since its last answer
        self.started: tuple[str, datetime] = ("", self.last_at)
        self.answers: dict[str, str] = {}  # call → its answer
        self.results: dict[str, str] = {}  # answer → its results
        self.last_answer = ""
        self.last_total: object = None
        self.events: list[tuple[str, str, datetime]] = []  # for files that hold nothing else

    def accept(self, line: JsonObject) -> None:
        kind, payload, time = string(line.get("type")), line.get("payload"), line.get("timestamp")
        if kind not in WRAPPED or not isinstance(payload, Mapping):
            if _is_meta(line):
                self.begin(line)
            elif kind and line.get("record_type") != "state":
                self.item(line, time)
            else:
                what = _("A line of unknown kind was left out.")
                self.notes("ignored", what, count=line.get("record_type") != "state")
            return
        match kind:
            case "session_meta":
                self.begin(payload)
            case "response_item":
                self.item(payload, time)
            case "turn_context":
                self.model = string(payload.get("model")) or self.model
            case "compacted":
                self.compaction(payload, time)
            case _:
                self.event(payload, time)

    def begin(self, meta: JsonObject) -> None:
        """The first metadata of the session counts; a fork repeats that of the session it came from."""
        if self.meta:
            self.notes("ignored", _("The file repeats the beginning of the session that it was forked from."))
            return
        self.meta = meta
        at, base = self.entry_time(meta.get("timestamp")), meta.get("base_instructions")
        if text := string(obj(base).get("text")) or string(base) or string(meta.get("instructions")):
            self.put(SystemInstructionSet(at=at, instruction=text), "instructions")

    def end(self) -> Conversation:
        source_id = string(self.meta.get("id")) or string(self.meta.get("session_id"))
        if not source_id:
            raise FormatError(_("the file does not name its session"))
        self.flush()
        if not any(isinstance(item.entry, ModelInput | ModelOutput) for item in self.tree.items.values()):
            self.add_events()
        if not self.tree.items:
            raise FormatError(_("this conversation has no messages"))
        facts = {
            "cli_version": string(self.meta.get("cli_version")),
            "git_branch": string(obj(self.meta.get("git")).get("branch")),
            "forked_from": string(self.meta.get("forked_from_id")),
        }
        spawn = obj(obj(obj(self.meta.get("source")).get("subagent")).get("thread_spawn"))
        return self.conversation(
            source_id,
            model=self.model,
            agent=string(self.meta.get("agent_nickname")),
            workspace=string(self.meta.get("cwd")) or self.folder,
            parent_id=string(self.meta.get("parent_thread_id")) or string(spawn.get("parent_thread_id")),
            metadata={name: value for name, value in facts.items() if value},
        )

    def add_events(self) -> None:
        """Some old files have messages only as events for the screen."""
        for role, text, at in self.events:
            parts = (Text(text=text),)
            self.identify(f"{role} {text}")
            if role == "user":
                self.put(ModelInput(at=at, channel=CHANNEL, parts=parts))
            else:
                self.put(ModelOutput(at=at, parts=parts, provider="openai", model=self.model))

    def identify(self, text: str) -> None:
        self.item_id = chain_id(self.item_id, text)

    def put(self, entry: Entry, name: str = "", *, covers: str = "") -> str:
        self.parent = self.tree.add(name or self.item_id, entry, parent=self.parent, covers=covers)
        return self.parent

    def item(self, item: JsonObject, time: object) -> None:
        at, kind = self.entry_time(time), string(item.get("type"))
        self.identify(compact(item))
        if kind in BOOKKEEPING:
            self.notes("ignored", _("An internal record of the program was left out."), where=kind)
        elif kind.endswith("_output"):
            self.flush()
            self.add_results(item, at)
        elif kind == "message" and item.get("role") != "assistant":
            self.flush()
            self.add_input(item, at)
        else:
            if not self.pending:
                self.started = (self.item_id, at)
            self.pending.append(item)

    def flush(self) -> None:
        """What the model did so far is one answer."""
        items, self.pending = self.pending, []
        name, at = self.started
        for entry in self.decode(items, at=at) if items else ():
            if isinstance(entry, ModelOutput):
                self.last_answer = self.put(replace(entry, provider="openai", model=self.model), name)
                self.answers.update({call.call_id: self.last_answer for call in entry.tool_requests})

    def add_input(self, item: JsonObject, at: datetime) -> None:
        for entry in self.decode([item], at=at):
            if not isinstance(entry, ModelInput):
                continue
            text = entry.text.lstrip()
            if entry.channel == "system":
                entry = instruction(entry.text, at=at)
            elif text.startswith(INTERNAL):
                self.notes("ignored", _("The program’s description of itself is internal."))
                entry = replace(entry, is_internal=True)
            if folder := FOLDER.search(text[:10_000]):
                self.folder = self.folder or folder[1]
            self.put(entry)

    def add_results(self, item: JsonObject, at: datetime) -> None:
        """Results of one answer are one entry, even if something came in between."""
        for entry in self.decode([item], at=at):
            if not isinstance(entry, ToolResults):
                continue
            results = tuple(_outcome(result) for result in entry.results)
            answer = self.answers.get(results[0].call_id, "")
            if answer in self.results:
                self.tree.add_results(self.results[answer], results)
                continue
            placed = self.put(replace(entry, results=results))
            if answer:
                self.results[answer] = placed

    def compaction(self, payload: JsonObject, time: object) -> None:
        self.flush()
        at, text = self.entry_time(time), string(payload.get("message"))
        self.identify(f"compacted {text}")
        if objs(payload.get("replacement_history")):
            self.notes("ignored", _("The context after a compaction was not imported as history."))
        if text.strip():
            last = next(reversed(self.tree.items), "")
            self.put(Summary(at=at, summary=text, model=self.model), covers=last)
        else:
            self.notes("lost", _("A compaction has no readable summary. The history before it is used again."))
            self.put(DebugLog(at=at, category="compacted", message="The context was compacted."))

    def event(self, payload: JsonObject, time: object) -> None:
        kind = string(payload.get("type"))
        if kind == "token_count":
            self.count_tokens(obj(payload.get("info")))
        elif kind in ("user_message", "agent_message"):
            role = "user" if kind == "user_message" else "assistant"
            self.events.append((role, string(payload.get("message")), self.entry_time(time)))
        elif kind in ("error", "turn_aborted", "stream_error"):
            self.flush()
            text = string(payload.get("message")) or string(payload.get("reason"))
            self.identify(f"{kind} {text}")
            self.put(DebugLog(at=self.entry_time(time), category=kind, message=text))

    def count_tokens(self, info: JsonObject) -> None:
        """Set the usage of the newest answer; an event with the same total repeats it for the screen."""
        total, used = info.get("total_token_usage"), obj(info.get("last_token_usage"))
        if not used or total == self.last_total:
            return
        self.last_total = total
        self.flush()
        if not self.last_answer:
            return
        entry = self.tree.items[self.last_answer].entry
        if isinstance(entry, ModelOutput) and entry.usage is None:
            usage = Usage(
                input_tokens=as_count(used.get("input_tokens")),
                output_tokens=as_count(used.get("output_tokens")),
                cache_read_tokens=as_count(used.get("cached_input_tokens")),
                reasoning_tokens=as_count(used.get("reasoning_output_tokens")),
                raw=used,
            )
            self.tree.replace_entry(self.last_answer, usage=usage)


def _outcome(result: ToolResult) -> ToolResult:
    """The output of a command is JSON inside a text, with its exit code and duration."""
    try:
        command = obj(parse_json(result.text)) if result.text.startswith("{") else {}
    except ValueError:
        return result
    facts, output = obj(command.get("metadata")), command.get("output")
    if not isinstance(output, str) or not facts:
        return result
    parts = (Text(text=output),) if output else ()
    duration = as_float(facts.get("duration_seconds"))
    return replace(result, parts=parts, status="failed" if facts.get("exit_code") else "success", duration=duration)


READER = Reader("codex", recognises, read)
