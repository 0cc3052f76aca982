"""Sessions of Gemini CLI: one JSON document (older), or a log of changes, one per line (newer).

A message of the log is written again whole whenever something is added to it. A rewind (`$rewindTo`) is a branch here.
`$set` of `messages` replaces what the *model* sees: what was said stays, and the snapshot becomes a summary. Commands
to the program and what it told the model about itself are kept as a log beside the conversation.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import PurePosixPath

from history.dialects.json_access import as_count, compact, items, obj, objs, string
from history.dialects.tools import call_id_for
from history.entries.kinds import DebugLog, ModelInput, ModelOutput, Summary, ToolResults
from history.entries.values import JsonDict, JsonObject, Part, ResultStatus, ToolRequest, ToolResult, Usage, text_of
from history.formats.base import Conversation, FormatError, Notes, chain_id
from history.formats.conversations import ConversationReader, parse_time, reasoning
from history.formats.sources import Reader, Sample, Source
from history.text.lazy import gettext_noop as _

PROVIDER = "gemini"
NOT_FOR_THE_MODEL = ("/", "?", "<session_context>", "<hook_context>")
STATUSES: dict[str, ResultStatus] = {"success": "success", "error": "failed", "cancelled": "interrupted"}


def recognises(sample: Sample) -> bool:
    if sample.shape not in ("object", "lines"):
        return False
    return any("sessionId" in item and ("startTime" in item or "projectHash" in item) for item in sample.items) and (
        sample.shape == "lines" or isinstance(sample.first.get("messages"), list)
    )


def read(source: Source) -> Iterator[Conversation]:
    log = _Log()
    if source.sample.shape == "object":
        record = obj(source.document())
        log.accept({name: value for name, value in record.items() if name != "messages"})
        for message in objs(record.get("messages")):
            log.message(message)
    else:
        for record in source.records(log.notes):
            log.accept(record)
    yield log.conversation(source.name)


class _Log:
    """The messages in the order in which they first came, each with the one that it followed."""

    def __init__(self) -> None:
        self.notes = Notes()
        self.record: JsonDict = {}
        self.messages: dict[str, JsonObject] = {}
        self.parents: dict[str, str] = {}
        self.path: list[str] = []
        self.places: dict[str, int] = {}  # of the messages on the path
        self.texts: Counter[str] = Counter()  # of the messages on the path
        self.snapshots: dict[str, str] = {}  # a message that is a summary → the last one that it covers

    def accept(self, line: JsonObject) -> None:
        if isinstance(target := line.get("$rewindTo"), str):
            self.rewind(target)
        elif isinstance(change := line.get("$set"), Mapping):
            self.set(change)
        elif "type" in line and "id" in line:
            self.message(line)
        elif "sessionId" in line or "startTime" in line:
            self.set(line)
        else:
            self.notes("ignored", _("A line of unknown kind was left out."))

    def message(self, message: JsonObject) -> None:
        name = string(message.get("id")) or f"message-{len(self.messages) + 1}"
        if name not in self.messages:
            self.parents[name] = self.path[-1] if self.path else ""
        if name in self.places:
            self.texts[_text_key(self.messages[name])] -= 1
        else:
            self.places[name] = len(self.path)
            self.path.append(name)
        self.messages[name] = message
        self.texts[_text_key(message)] += 1

    def rewind(self, target: str) -> None:
        what = _("A rewind names a missing message. The conversation starts again.")
        self.notes("repaired", what, where=target, count=target not in self.places)
        self._cut_path(self.places.get(target, 0))

    def _cut_path(self, length: int) -> None:
        """Each message is put on the path and taken off it once, however often a file rewinds."""
        while len(self.path) > length:
            name = self.path.pop()
            del self.places[name]
            self.texts[_text_key(self.messages[name])] -= 1

    def set(self, change: JsonObject) -> None:
        self.record.update({name: value for name, value in change.items() if name != "messages"})
        if "messages" in change:
            self.replace([message for message in items(change["messages"]) if isinstance(message, Mapping)])

    def replace(self, messages: list[JsonObject]) -> None:
        """Replace what the model sees. A prefix of the path is a rewind."""
        names = [string(message.get("id")) for message in messages]
        if names == self.path[: len(names)]:
            self._cut_path(len(names))
            return
        covered = self.path[-1] if self.path else ""
        texts = {_text_key(message) for message in messages if self.texts[_text_key(message)] > 0}
        for message, name in zip(messages, names, strict=True):
            if name in self.messages:
                continue
            if "<state_snapshot>" in str(message.get("content")) and covered:
                self.snapshots[name] = covered
            elif _text_key(message) in texts:
                self.notes("ignored", _("Text that the model received again after a compression was left out."))
                continue
            self.message(message)

    def conversation(self, source_name: str) -> Conversation:
        session_id = string(self.record.get("sessionId"))
        if not session_id:
            raise FormatError(_("the file has no sessionId"))
        reader = _Messages(self.record.get("startTime"), self.notes, self.snapshots)
        ends: dict[str, str] = {}
        for name, message in self.messages.items():
            ends[name] = reader.add(name, message, parent=ends.get(self.parents[name], ""))
        directories = items(self.record.get("directories"))
        is_child = self.record.get("kind") == "subagent"
        return reader.conversation(
            session_id,
            leaf=ends.get(self.path[-1], "") if self.path else "",
            title=string(self.record.get("summary")),
            workspace=string(directories[0]) if directories else "",
            parent_id=PurePosixPath(source_name).parent.name if is_child else "",
            metadata={"projectHash": project} if (project := string(self.record.get("projectHash"))) else {},
        )


def _text_key(message: JsonObject) -> str:
    return chain_id(string(message.get("type")), compact(message.get("content")))


class _Messages(ConversationReader):
    """The entries of messages: a `gemini` message is an answer with its calls, and these hold their results."""

    def __init__(self, start: object, notes: Notes, snapshots: Mapping[str, str]) -> None:
        super().__init__("Gemini CLI", "gemini-generate", start=start, notes=notes)
        self.snapshots = snapshots
        self.answered: set[str] = set()

    def add(self, name: str, message: JsonObject, *, parent: str) -> str:
        """Add the entries of a message after `parent`. Returns what the next message follows."""
        at = self.entry_time(message.get("timestamp"))
        match message.get("type"):
            case "gemini":
                return self._answer(name, message, at, parent)
            case "user":
                return self._input(name, message, at, parent)
            case kind:
                log = DebugLog(at=at, category=string(kind) or "unknown", message=_plain(message.get("content")))
                return self.tree.add(name, log, parent=parent)

    def _input(self, name: str, message: JsonObject, at: datetime, parent: str) -> str:
        entries = self.decode([{"role": "user", "parts": _parts(message.get("content"))}], at=at)
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
            covered = results if results in self.tree.items else covered
            return self.tree.add(name, summary, parent=parent, covers=covered)
        if text.startswith(NOT_FOR_THE_MODEL):
            what = _("Commands and messages of the program are kept as a log, outside the context.")
            self.notes("ignored", what)
            return self.tree.add(name, DebugLog(at=entry.at, category="command", message=text), parent=parent)
        shown = _plain(message.get("displayContent"))
        return self.tree.add(name, replace(entry, raw=shown) if shown and shown != entry.text else entry, parent=parent)

    def _results(self, name: str, entry: ToolResults, parent: str) -> str:
        fresh = tuple(result for result in entry.results if result.call_id not in self.answered)
        what = _("A repeated tool result was imported once.")
        self.notes("ignored", what, count=len(entry.results) - len(fresh))
        self.answered.update(result.call_id for result in fresh)
        return self.tree.add(name, replace(entry, results=fresh), parent=parent) if fresh else parent

    def _answer(self, name: str, message: JsonObject, at: datetime, parent: str) -> str:
        calls = objs(message.get("toolCalls"))
        made: dict[str, ToolRequest] = {}
        for call in calls:
            tool, arguments = string(call.get("name")) or "unknown", compact(obj(call.get("args")))
            call_id = string(call.get("id"))
            call_id = call_id if call_id and call_id not in made else call_id_for(tool, arguments, taken=made)
            made[call_id] = ToolRequest(call_id=call_id, name=tool, arguments=arguments)
        entries = self.decode([{"role": "model", "parts": _parts(message.get("content"))}], at=at)
        parts: list[Part] = [
            reasoning(string(thought.get("subject")), string(thought.get("description")), provider=PROVIDER)
            for thought in objs(message.get("thoughts"))
        ]
        parts += [part for entry in entries if isinstance(entry, ModelOutput) for part in entry.parts]
        called = {part.call_id for part in parts if isinstance(part, ToolRequest)}
        parts += [request for call_id, request in made.items() if call_id not in called]
        if not parts:
            self.notes("ignored", _("An empty answer was left out."), where=name)
            return parent
        usage: Usage | None = None
        if tokens := obj(message.get("tokens")):
            thoughts = as_count(tokens.get("thoughts"))
            usage = Usage(
                input_tokens=as_count(tokens.get("input")) + as_count(tokens.get("tool")),
                output_tokens=as_count(tokens.get("output")) + thoughts,
                cache_read_tokens=as_count(tokens.get("cached")),
                reasoning_tokens=thoughts,
                raw=tokens,
            )
        model = string(message.get("model"))
        output = ModelOutput(at=at, parts=tuple(parts), provider=PROVIDER, model=model, usage=usage)
        parent = self.tree.add(name, output, parent=parent)
        if not calls:
            return parent
        pairs = zip(calls, made.values(), strict=True)
        results = tuple(self._result(call, request, at) for call, request in pairs)
        self.answered.update(made)
        return self.tree.add(f"{name}/results", ToolResults(at=at, results=results), parent=parent)

    def _result(self, call: JsonObject, request: ToolRequest, at: datetime) -> ToolResult:
        parts = _parts(call.get("result"))
        read = self.decode([{"role": "user", "parts": parts}], at=at) if parts else []
        found = [result for entry in read if isinstance(entry, ToolResults) for result in entry.results]
        more = tuple(part for entry in read if isinstance(entry, ModelInput) for part in entry.parts)
        result_parts = tuple(part for result in found for part in result.parts) + more
        status = STATUSES.get(string(call.get("status")))
        if status is None:
            status = found[0].status if found else "success" if result_parts else "interrupted"
        if not result_parts and status != "success":
            what = _("A call has no result in the file. It is marked as interrupted.")
            self.notes("repaired", what, where=request.name)
        return ToolResult(
            call_id=request.call_id,
            name=request.name,
            status=status,
            parts=result_parts,
            error=text_of(result_parts)[:500] if status == "failed" else "",
            started_at=parse_time(call.get("timestamp")),
        )


def _parts(content: object) -> list[object]:
    """Content is a text, a part, or a list of both."""
    content = items(content) if isinstance(content, list | tuple) else [content] if content else []
    return [{"text": part} if isinstance(part, str) else part for part in content]


def _plain(content: object) -> str:
    return "\n".join(string(obj(part).get("text")) for part in _parts(content)).strip()


READER = Reader("gemini-cli", recognises, read)
