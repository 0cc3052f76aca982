"""The items of a Codex rollout, gathered into entries: what the model did in a row is one answer."""

import re
from dataclasses import replace
from datetime import datetime

from history.dialects.json_access import count, number, obj, objs, parse_json, string
from history.entries import (
    LEAVES,
    DebugLog,
    Entry,
    JsonObject,
    ModelInput,
    ModelOutput,
    ResultStatus,
    Summary,
    SystemInstructionSet,
    Text,
    ToolResult,
    ToolResults,
    Usage,
)
from history.formats.base import Notes, SourceNode, chain_id, gettext_noop
from history.formats.conversations import CHANNEL, Clock, Wire, instruction

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
        self.pending: list[JsonObject] = []
        self.started: tuple[str, datetime] = ("", clock.last)
        self.answers_by_call: dict[str, int] = {}  # call → index of its answer
        self.results_by_answer: dict[int, int] = {}  # place of an answer → place of its results
        self.results: dict[int, dict[str, ToolResult]] = {}  # place of results → further ones, by call
        self.last_answer: int | None = None  # its place
        self.last_total: object = None
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

    def item(self, item: JsonObject, time: object, *, text: str) -> None:
        at, kind = self.clock.at(time), string(item.get("type"))
        self.last = chain_id(self.last, text)
        if kind in NOTHING_SAID:
            self.notes("ignored", gettext_noop("A bookkeeping item was left out."), where=kind)
        elif kind.endswith("_output"):
            self.flush()
            self._results(item, at)
        elif kind == "message" and item.get("role") != "assistant":
            self.flush()
            self._add_input(item, at)
        else:
            if not self.pending:
                self.started = (self.last, at)
            self.pending.append(item)

    def flush(self) -> None:
        """What the model did so far is one answer."""
        items, self.pending = self.pending, []
        name, at = self.started
        for entry in self.wire.read(items, at=at) if items else ():
            if isinstance(entry, ModelOutput):
                self.answers_by_call.update({call.call_id: len(self.entries) for call in entry.tool_requests})
                self._put(name, replace(entry, provider="openai", model=self.model))

    def _add_input(self, item: JsonObject, at: datetime) -> None:
        for entry in self.wire.read([item], at=at):
            if not isinstance(entry, ModelInput):
                continue
            text = entry.text.lstrip()
            if entry.channel == "system":
                entry = instruction(entry.text, at=at)
            elif text.startswith(TOLD):
                self.notes("ignored", gettext_noop("The program’s description of itself is internal."))
                entry = replace(entry, is_internal=True)
            if folder := FOLDER.search(text[:10_000]):
                self.folder = self.folder or folder[1]
            self._put(self.last, entry)

    def _results(self, item: JsonObject, at: datetime) -> None:
        """Results of one answer are one entry, even if something came in between."""
        for entry in self.wire.read([item], at=at):
            if not isinstance(entry, ToolResults):
                continue
            results = tuple(_outcome(result) for result in entry.results)
            answer = self.answers_by_call.get(results[0].call_id)
            if answer is not None and answer in self.results_by_answer:
                self._more(self.results_by_answer[answer], results)
                continue
            if answer is not None:
                self.results_by_answer[answer] = len(self.entries)
            self._put(self.last, replace(entry, results=results))

    def _more(self, place: int, results: tuple[ToolResult, ...]) -> None:
        first, more = self.entries[place][1], self.results.setdefault(place, {})
        known = {result.call_id for result in first.results} if isinstance(first, ToolResults) else frozenset()
        fresh = [result for result in results if result.call_id not in known and result.call_id not in more]
        what = gettext_noop("A repeated tool result was imported once.")
        self.notes("ignored", what, count=not fresh)
        more.update({result.call_id: result for result in fresh})

    # Records of the program.

    def compaction(self, payload: JsonObject, time: object) -> None:
        self.flush()
        at, text = self.clock.at(time), string(payload.get("message"))
        self.last = chain_id(self.last, f"compacted {text}")
        if objs(payload.get("replacement_history")):
            what = gettext_noop("The context after a compaction was not imported as history.")
            self.notes("ignored", what)
        if text.strip():
            last = len(self.entries)
            self._put(self.last, Summary(at=at, first=1 if last else 0, last=last, summary=text, model=self.model))
        else:
            what = gettext_noop("A compaction has no readable summary. The history before it counts again.")
            self.notes("lost", what)
            self._put(self.last, DebugLog(at=at, category="compacted", message="The context was compacted."))

    def event(self, payload: JsonObject, time: object) -> None:
        kind = string(payload.get("type"))
        if kind == "token_count":
            self._count(obj(payload.get("info")))
        elif kind in SPOKEN:
            self.events.append((SPOKEN[kind], string(payload.get("message")), self.clock.at(time)))
        elif kind in ("error", "turn_aborted", "stream_error"):
            self.flush()
            text = string(payload.get("message")) or string(payload.get("reason"))
            self.last = chain_id(self.last, f"{kind} {text}")
            self._put(self.last, DebugLog(at=self.clock.at(time), category=kind, message=text))

    def _count(self, info: JsonObject) -> None:
        """Set the usage of the newest answer; an event with the same total repeats it for the screen."""
        total, used = info.get("total_token_usage"), obj(info.get("last_token_usage"))
        if not used or total == self.last_total:
            return
        self.last_total = total
        self.flush()
        if self.last_answer is None:
            return
        name, entry = self.entries[self.last_answer]
        if isinstance(entry, ModelOutput) and entry.usage is None:
            self.entries[self.last_answer] = (name, replace(entry, usage=_usage(used)))

    def _from_events(self) -> None:
        """Some old files have messages only as events for the screen."""
        for role, text, at in self.events:
            self.last = chain_id(self.last, f"{role} {text}")
            parts = (Text(text=text),)
            model = self.model
            self._put(
                self.last,
                ModelInput(at=at, channel=CHANNEL, parts=parts)
                if role == "user"
                else ModelOutput(at=at, parts=parts, provider="openai", model=model),
            )

    def _put(self, name: str, entry: Entry) -> None:
        if isinstance(entry, ModelOutput):
            self.last_answer = len(self.entries)
        self.entries.append((name, entry))


def _usage(used: JsonObject) -> Usage:
    return Usage(
        input_tokens=count(used.get("input_tokens")),
        output_tokens=count(used.get("output_tokens")),
        cache_read_tokens=count(used.get("cached_input_tokens")),
        reasoning_tokens=count(used.get("reasoning_output_tokens")),
        raw=used,
    )


def _outcome(result: ToolResult) -> ToolResult:
    """The output of a command is JSON inside a text, with its exit code and duration."""
    try:
        command = obj(parse_json(result.text)) if result.text.startswith("{") else {}
    except ValueError:
        return result
    facts, output = obj(command.get("metadata")), command.get("output")
    if not isinstance(output, str) or not facts:
        return result
    status: ResultStatus = "failed" if facts.get("exit_code") else "success"
    parts = (Text(text=output),) if output else ()
    return replace(result, parts=parts, status=status, duration=number(facts.get("duration_seconds")))
