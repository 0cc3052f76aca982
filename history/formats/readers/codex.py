"""Rollouts of Codex: one item per line, in three generations of the format.

The newest wrap each item (`{timestamp, type, payload}`); before that the items stood bare after a line about the
session, with `{"record_type": "state"}` between them. Items are those of OpenAI Responses. `event_msg` tells the same
again for the screen, and counts tokens. `compacted` holds what the model sees from then on: its message is a summary of
what came before, and its `replacement_history` is context, nothing that was said.
"""

from collections.abc import Iterator, Mapping

from history.dialects.json_access import compact, obj, string
from history.entries import JsonObject
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, gettext_noop
from history.formats.conversations import Clock
from history.formats.readers.codex_items import Items
from history.formats.sources import Reader, Sample, Source

CLIENT = "Codex"
WRAPPED = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
BARE = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})


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


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    rollout = _Rollout()
    for line in source.records(rollout.notes):
        rollout.accept(line)
    yield rollout.conversation()


class _Rollout:
    def __init__(self) -> None:
        self.notes = Notes()
        self.clock = Clock()
        self.items = Items(self.clock, self.notes)
        self.meta: JsonObject = {}

    def accept(self, line: JsonObject) -> None:
        kind, payload = string(line.get("type")), line.get("payload")
        if kind in WRAPPED and isinstance(payload, Mapping):
            self.accept_wrapped(kind, payload, line.get("timestamp"))
        elif _is_meta(line):
            self.begin(line)
        elif line.get("record_type") == "state":
            return
        elif kind:
            self.items.item(line, line.get("timestamp"), text=compact(line))
        else:
            self.notes("ignored", gettext_noop("A line of unknown kind was left out."))

    def accept_wrapped(self, kind: str, payload: JsonObject, time: object) -> None:
        match kind:
            case "session_meta":
                self.begin(payload)
            case "response_item":
                self.items.item(payload, time, text=compact(payload))
            case "turn_context":
                self.items.model = string(payload.get("model")) or self.items.model
            case "compacted":
                self.items.compaction(payload, time)
            case _:
                self.items.event(payload, time)

    def begin(self, meta: JsonObject) -> None:
        """The first word about the session counts; a fork repeats that of the session it came from."""
        if self.meta:
            what = gettext_noop("The file repeats the beginning of the session that it was forked from.")
            self.notes("ignored", what)
            return
        self.meta = meta
        self.clock.at(meta.get("timestamp"))
        base = meta.get("base_instructions")
        text = string(obj(base).get("text")) or string(base) or string(meta.get("instructions"))
        if text:
            self.items.instruct(text)

    def conversation(self) -> Conversation:
        source_id = string(self.meta.get("id")) or string(self.meta.get("session_id"))
        if not source_id:
            raise FormatError(gettext_noop("the file does not name its session"))
        nodes = self.items.nodes()
        if not nodes:
            raise FormatError(gettext_noop("this conversation has no messages"))
        branch = string(obj(self.meta.get("git")).get("branch"))
        facts = {"cli_version": string(self.meta.get("cli_version")), "git_branch": branch}
        facts["forked_from"] = string(self.meta.get("forked_from_id"))
        return Conversation(
            source_id=source_id,
            client=CLIENT,
            nodes=nodes,
            created_at=self.clock.first,
            updated_at=self.clock.last if self.clock.first else None,
            model=self.items.model,
            agent=string(self.meta.get("agent_nickname")),
            workspace=string(self.meta.get("cwd")) or self.items.folder,
            parent_id=_parent(self.meta),
            metadata={name: value for name, value in facts.items() if value},
            blobs=self.items.wire.blobs,
            notes=self.notes.as_tuple(),
        )


def _parent(meta: JsonObject) -> str:
    spawn = obj(obj(obj(meta.get("source")).get("subagent")).get("thread_spawn"))
    return string(meta.get("parent_thread_id")) or string(spawn.get("parent_thread_id"))


READER = Reader("codex", recognises, read)
