"""Sessions of Gemini CLI: one JSON document (older), or a log of changes, one per line (newer).

The log begins with the session's own record; then messages, which are written again whole whenever something is added
to them, changes of the record (`$set`) and rewinds (`$rewindTo`, which takes back the message that it names and all
after it). A rewind is a branch here. `$set` of `messages` replaces what the *model* sees, after a compression for
example: what was said stays, and the snapshot becomes a summary.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from history.dialects.json_access import compact, items, obj, objs, string
from history.entries import Entry, JsonDict, JsonObject, ModelInput, now
from history.formats.base import Conversation, FormatError, Notes, chain_id, gettext_noop
from history.formats.conversations import Clock, Tree, Wire, add_ids, chain_nodes, moment
from history.formats.readers.gemini_messages import GeminiMessages
from history.formats.sources import Reader, Sample, Source

CLIENT = "Gemini CLI"
ENVIRONMENT = ("This is the Gemini CLI", "<session_context>")
OPENING_CONTENTS = 4  # the environment, its acknowledgement, the first question and its answer


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
            self.notes("ignored", gettext_noop("A line of unknown kind was left out."))

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
        what = gettext_noop("A rewind names a missing message. The conversation starts again.")
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
                what = gettext_noop("Text that the model received again after a compression was left out.")
                self.notes("ignored", what)
                continue
            self.message(message)

    def conversation(self, source_name: str) -> Conversation:
        session_id = string(self.record.get("sessionId"))
        if not session_id:
            raise FormatError(gettext_noop("the file has no sessionId"))
        clock = Clock(self.record.get("startTime"))
        tree = Tree(self.notes)
        written = GeminiMessages(tree, clock, snapshots=self.snapshots)
        ends: dict[str, str] = {}
        for name, message in self.messages.items():
            parent = ends.get(self.parents[name], "")
            ends[name] = written.add(name, message, parent=parent)
        nodes, leaf = tree.nodes(ends.get(self.path[-1], "") if self.path else "")
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


def _text_key(message: JsonObject) -> str:
    return chain_id(string(message.get("type")), compact(message.get("content")))


# Checkpoints (`/chat save`).


def recognises_checkpoint(sample: Sample) -> bool:
    if sample.shape == "object":
        history = items(sample.first.get("history"))
        return bool(history) and all(_is_content(content) for content in history[:3])
    return sample.shape == "array" and bool(sample.items) and all(_is_content(item) for item in sample.items)


def _is_content(value: object) -> bool:
    return obj(value).get("role") in ("user", "model") and isinstance(obj(value).get("parts"), list)


def read_checkpoint(source: Source) -> Iterator[Conversation]:
    """A checkpoint has no ids or times. One that is saved again under the same tag begins like the one before.

    So its id is made from its beginning: then new entries are appended, and where the two part a branch begins.
    """
    document = source.document()
    contents = items(document.get("history") if isinstance(document, Mapping) else document)
    if not contents:
        raise FormatError(gettext_noop("the checkpoint is empty"))
    contents = [obj(content) for content in contents]
    notes = Notes()
    notes("lost", gettext_noop("The checkpoint has no times. Its entries get the time of the import."))
    wire = Wire("gemini-generate", notes)
    entries = [_mark_environment(entry) for entry in wire.read(contents, at=now())]
    yield Conversation(
        source_id=chain_id("", compact(contents[:OPENING_CONTENTS])),
        client=CLIENT,
        nodes=chain_nodes(add_ids(entries)),
        blobs=wire.blobs,
        notes=notes.as_tuple(),
    )


def _mark_environment(entry: Entry) -> Entry:
    """Mark the environment message, which the program writes first, as internal."""
    if isinstance(entry, ModelInput) and entry.text.lstrip().startswith(ENVIRONMENT):
        return replace(entry, is_internal=True)
    return entry


READER = Reader("gemini-cli", recognises, read)
CHECKPOINT_READER = Reader("gemini-checkpoint", recognises_checkpoint, read_checkpoint)
