"""Sessions of Gemini CLI: one JSON document (older), or a log of changes, one per line (newer).

The log begins with the session's own record; then messages, which are written again whole whenever something is added
to them, changes of the record (`$set`) and rewinds (`$rewindTo`, which takes back the message that it names and all
after it). A rewind is a branch here. `$set` of `messages` replaces what the *model* sees, after a compression for
example: what was said stays, and the snapshot becomes a summary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from history.dialects.json_access import compact, items, obj, objs, string
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, chain_id, gettext_noop
from history.formats.readers.gemini_messages import GeminiMessages
from history.formats.sources import Sample, Source
from history.formats.times import Clock, moment
from history.formats.trees import Tree

NAME = "gemini-cli"
CLIENT = "Gemini CLI"


def recognises(sample: Sample) -> bool:
    if sample.shape not in ("object", "lines"):
        return False
    return any("sessionId" in item and ("startTime" in item or "projectHash" in item) for item in sample.items) and (
        sample.shape == "lines" or isinstance(sample.first.get("messages"), list)
    )


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
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
        self.record: dict[str, Any] = {}
        self.messages: dict[str, Mapping[str, Any]] = {}
        self.parents: dict[str, str] = {}
        self.path: list[str] = []
        self.places: dict[str, int] = {}  # of the messages on the path
        self.said: Counter[str] = Counter()  # what the messages on the path say
        self.snapshots: dict[str, str] = {}  # a message that is a summary → the last one that it stands for

    def accept(self, line: Mapping[str, Any]) -> None:
        if isinstance(target := line.get("$rewindTo"), str):
            self.rewind(target)
        elif isinstance(change := line.get("$set"), Mapping):
            self.set(change)
        elif "type" in line and "id" in line:
            self.message(line)
        elif "sessionId" in line or "startTime" in line:
            self.set(line)
        else:
            self.notes("ignored", gettext_noop("A line of an unknown kind was left out."))

    def message(self, message: Mapping[str, Any]) -> None:
        name = string(message.get("id")) or f"message-{len(self.messages) + 1}"
        if name not in self.messages:
            self.parents[name] = self.path[-1] if self.path else ""
        if name in self.places:
            self.said[_said(self.messages[name])] -= 1
        else:
            self.places[name] = len(self.path)
            self.path.append(name)
        self.messages[name] = message
        self.said[_said(message)] += 1

    def rewind(self, target: str) -> None:
        if target in self.places:
            self._cut_path(self.places[target])
            return
        self.notes(
            "repaired",
            gettext_noop("A rewind names a message that is not there: the conversation begins anew."),
            where=target,
        )
        self._cut_path(0)

    def _cut_path(self, length: int) -> None:
        """Each message is put on the path and taken off it once, however often a file rewinds."""
        while len(self.path) > length:
            name = self.path.pop()
            del self.places[name]
            self.said[_said(self.messages[name])] -= 1

    def set(self, change: Mapping[str, Any]) -> None:
        self.record.update({name: value for name, value in change.items() if name != "messages"})
        if "messages" in change:
            self.replace([message for message in items(change["messages"]) if isinstance(message, Mapping)])

    def replace(self, messages: list[Mapping[str, Any]]) -> None:
        """What the model sees from now on. A shorter beginning of what there is takes the rest back."""
        names = [string(message.get("id")) for message in messages]
        if names == self.path[: len(names)]:
            self._cut_path(len(names))
            return
        covered = self.path[-1] if self.path else ""
        said = {_said(message) for message in messages if self.said[_said(message)] > 0}
        for message, name in zip(messages, names, strict=True):
            if name in self.messages:
                continue
            if "<state_snapshot>" in str(message.get("content")) and covered:
                self.snapshots[name] = covered
            elif _said(message) in said:
                self.notes("ignored", gettext_noop("What the model was told again after a compression was left out."))
                continue
            self.message(message)

    def conversation(self, source_name: str) -> Conversation:
        session_id = string(self.record.get("sessionId"))
        if not session_id:
            raise FormatError(gettext_noop("the file names no sessionId"))
        clock = Clock(self.record.get("startTime"))
        tree = Tree(self.notes)
        written = GeminiMessages(tree, clock, snapshots=self.snapshots)
        ends: dict[str, str] = {}
        for name, message in self.messages.items():
            parent = ends.get(self.parents[name], "")
            ends[name] = written.add(name, message, parent=parent)
        tree.leaf = ends.get(self.path[-1], "") if self.path else ""
        nodes, leaf = tree.nodes()
        directories = items(self.record.get("directories"))
        is_child = self.record.get("kind") == "subagent"
        return Conversation(
            source_id=session_id,
            client=CLIENT,
            nodes=nodes,
            leaf=leaf,
            title=string(self.record.get("summary")),
            created_at=moment(self.record.get("startTime")) or clock.first,
            updated_at=moment(self.record.get("lastUpdated")),
            workspace=string(directories[0]) if directories else "",
            parent_id=PurePosixPath(source_name).parent.name if is_child else "",
            metadata={"projectHash": project} if (project := string(self.record.get("projectHash"))) else {},
            blobs=written.wire.blobs,
            notes=self.notes.as_tuple(),
        )


def _said(message: Mapping[str, Any]) -> str:
    return chain_id(string(message.get("type")), compact(message.get("content")))
