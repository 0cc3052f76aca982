"""Transcripts of Claude Code: one record per line, each with a `uuid` and the `parentUuid` of what it follows.

A file holds one session and, in older versions, the side chains of its subagents, which are sessions of their own here;
newer versions give them files of their own (`agent-*.jsonl`). Records that are not part of the conversation (progress,
snapshots, attachments) may still be the parent of one that is.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from history.dialects.json_access import string
from history.entries import JsonObject
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, gettext_noop
from history.formats.readers.claude_code_thread import Thread
from history.formats.sources import Reader, Sample, Source

CLIENT = "Claude Code"
TITLES = ("customTitle", "aiTitle", "summary")  # in order of preference


def recognises(sample: Sample) -> bool:
    return sample.shape in ("lines", "object") and any(_is_record(item) for item in sample.items)


def _is_record(item: JsonObject) -> bool:
    if item.get("type") == "summary":
        return "leafUuid" in item
    return isinstance(item.get("type"), str) and "uuid" in item and ("sessionId" in item or "parentUuid" in item)


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    transcript = _Transcript()
    for record in source.records(transcript.notes):
        transcript.accept(record)
    yield from transcript.conversations(PurePosixPath(source.name).stem)


class _Transcript:
    def __init__(self) -> None:
        self.notes = Notes()
        self.main = Thread(self.notes)
        self.sides: dict[str, Thread] = {}
        self.side_of: dict[str, str] = {}  # record of a side chain → its side chain, for records without its id
        self.titles: dict[str, str] = {}
        self.sessions: dict[str, None] = {}
        self.facts: dict[str, str] = {}

    def accept(self, record: JsonObject) -> None:
        for name in TITLES:
            if title := string(record.get(name)):
                self.titles[name] = title
        if session := string(record.get("sessionId")):
            self.sessions[session] = None
        if not string(record.get("uuid")):
            return
        for name in ("cwd", "gitBranch", "version"):
            self.facts.setdefault(name, string(record.get(name)))
        self._thread_of(record).add(record)

    def _thread_of(self, record: JsonObject) -> Thread:
        if record.get("isSidechain") is not True:
            return self.main
        uuid, parent = string(record.get("uuid")), string(record.get("parentUuid"))
        side = string(record.get("agentId")) or self.side_of.get(parent) or uuid
        self.side_of[uuid] = side
        if side not in self.sides:
            self.sides[side] = Thread(Notes())
        return self.sides[side]

    def conversations(self, file_name: str) -> Iterator[Conversation]:
        """The session, and each of its subagents."""
        session = file_name if file_name in self.sessions else next(reversed(self.sessions), "")
        if not session:
            raise FormatError(gettext_noop("no record names its session"))
        calls: dict[str, str] = {}
        if self.main.records:
            title = next((self.titles[name] for name in TITLES if name in self.titles), "")
            yield self._conversation(self.main, session, title=title, notes=self.notes)
            calls = self.main.agents
        for side, thread in self.sides.items():
            name, call = f"{session}/{side}", calls.get(side, "")
            found = self._conversation(thread, name, notes=thread.notes, parent_id=session, parent_call=call)
            yield found
        if not self.main.records and not self.sides:
            raise FormatError(gettext_noop("this conversation has no messages"))

    def _conversation(self, thread: Thread, source_id: str, *, notes: Notes, **fields: str) -> Conversation:
        nodes, leaf = thread.nodes()
        facts = {name: self.facts[name] for name in ("gitBranch", "version") if self.facts.get(name)}
        return Conversation(
            source_id=source_id,
            client=CLIENT,
            nodes=nodes,
            leaf=leaf,
            created_at=thread.clock.first,
            updated_at=thread.clock.last if thread.clock.first else None,
            workspace=self.facts.get("cwd", ""),
            agent=thread.agent,
            metadata=facts,
            blobs=thread.wire.blobs,
            notes=notes.as_tuple(),
            **fields,
        )


READER = Reader("claude-code", recognises, read)
