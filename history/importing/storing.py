"""Storage of an imported conversation; repeated imports add only what is new (docs/import.md).

The last entries of a conversation may not have been finished, so they have a digest, too, and one that has changed is
appended as another version. A long conversation is written some hundred entries at a time, each time under the lock of
its session, so two imports of the same file at once do not double it, and the next import continues one that died.
"""

import hashlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID, uuid5

from django.db import IntegrityError

from history.db.packing import dump
from history.db.transactions import writing
from history.entries import Entry, HeadMoved, ModelOutput, Numbering, Reasoning, entry_to_json
from history.formats.base import Conversation
from history.formats.conversations import find_last_place
from history.formats.reports import ImportOutcome, outcome_of
from history.models import ApiKey, Message, Session
from history.record import recorder, writer
from history.record.recorder import Append

NAMESPACE = UUID("6d0d9c1e-6e0b-5c0b-9d52-1f0f6a9f2b11")
BATCH = 200
MARK = "import"


Stored = tuple[UUID, ImportOutcome, int]  # the session, what became of it, and the number of new entries


@dataclass(frozen=True, slots=True)
class ConversationStore:
    """Where conversations go. `recording` is the mode of the key that sends them, with or without `recording_key`."""

    owner: Any
    recording_key: ApiKey | None = None
    recording: str = "full"

    def find(self, *, client: str, source_id: str) -> tuple[UUID, Session | None]:
        """The session of a conversation, or the id that it will have: the first that was not deleted."""
        owner = f"{self.owner.pk}" if self.recording_key is None else f"{self.owner.pk} {self.recording_key.pk}"
        attempt = 0
        while True:
            session_id = uuid5(NAMESPACE, f"{owner}\n{client}\n{source_id}\n{attempt}")
            session = Session.objects.filter(pk=session_id).first()
            if session is None or session.state == Session.State.OPEN:
                return session_id, session
            attempt += 1

    def preview(self, conversation: Conversation) -> Stored:
        """The result of `store` without storing."""
        session_id, session = self.find(client=conversation.client, source_id=conversation.source_id)
        growth = _Growth(conversation)
        if session:
            growth.learn(session, version=session.version)
        new = sum(growth.is_new(place) for place in growth.places(session))
        return session_id, outcome_of(session, has_grown=new > 0), new

    def store(self, conversation: Conversation) -> Generator[None, None, Stored]:
        """Import what is not stored yet. Other writers may continue between the batches of a long conversation."""
        is_short = len(conversation.nodes) <= BATCH
        try:
            with writing() if is_short else nullcontext():
                return (yield from self._store(conversation))
        except IntegrityError:  # another import has just begun the same session
            with writing() if is_short else nullcontext():
                return (yield from self._store(conversation))

    def link(self, child: UUID, client: str, parent_id: str) -> None:
        _, parent = self.find(client=client, source_id=parent_id)
        if parent is not None and parent.pk != child:
            with writing():
                Session.objects.filter(pk=child, parent=None).update(parent=parent)

    def _store(self, conversation: Conversation) -> Generator[None, None, Stored]:
        session_id, stored = self.find(client=conversation.client, source_id=conversation.source_id)
        session = stored if stored is not None else self._start_session(conversation, session_id)
        growth = _Growth(conversation, recording=self.recording)
        old_head = session.head
        places = growth.places(stored)
        for start in range(0, len(places), BATCH):
            if start:
                yield
            _append(session, growth, places[start : start + BATCH])
        if growth.added:
            _move_head(session, growth, old_head)
        return session.pk, outcome_of(stored, has_grown=growth.added > 0), growth.added

    def _start_session(self, conversation: Conversation, session_id: UUID) -> Session:
        facts = {"id": conversation.source_id, **conversation.metadata}
        if conversation.parent_id:
            facts["parent"] = conversation.parent_id
        return recorder.start_session(
            id=session_id,
            owner=self.owner,
            api_key=self.recording_key,
            source=Session.Source.IMPORT,
            recording=self.recording,
            client=conversation.client,
            title=" ".join(conversation.title.split()),
            agent=conversation.agent,
            model=conversation.model,
            workspace=conversation.workspace,
            created_at=conversation.created_at,
            parent_call=conversation.parent_call,
            metadata={MARK: facts},
        )


def _append(session: Session, growth: "_Growth", places: Sequence[int]) -> None:
    """Append the entries of these nodes that are not stored; checked under the lock."""
    with writing():
        locked = writer.lock([session.pk])[session.pk]
        growth.learn(session, version=locked.version)
        appends = growth.appends(session.pk, places, next_seq=locked.version + 1)
        if appends:
            recorder.append_batch(appends, files=growth.conversation.blobs)


@dataclass
class _Growth:
    """The nodes of a conversation: which are stored, with their numbers, and which are new."""

    conversation: Conversation
    recording: str = "full"
    # Source id → its newest entry, and the digest of one that may not have been finished.
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    version: int = 0  # of the session, up to which `known` is loaded
    seqs: dict[int, int] = field(default_factory=dict)  # node → its number
    renewed: set[int] = field(default_factory=set)  # nodes that are stored again, with all that follows them
    added: int = 0

    def __post_init__(self) -> None:
        # The ends of all branches and their parents: where a conversation may not have been finished.
        nodes = self.conversation.nodes
        parents = {node.parent for node in nodes}
        ends = [place for place in range(len(nodes)) if place not in parents]
        self.tail = {*ends, *(nodes[place].parent for place in ends)}
        self.numbers = Numbering()

    def learn(self, session: Session, *, version: int) -> None:
        """Load what was appended since, by this import or others."""
        if version <= self.version:
            return
        rows = Message.objects.of(session).filter(seq__gt=self.version, metadata__has_key=MARK).order_by("seq")
        for seq, metadata in rows.values_list("seq", "metadata").iterator(chunk_size=2_000):
            mark = metadata.get(MARK)
            if isinstance(mark, Mapping) and isinstance(mark.get("id"), str):
                self.known[mark["id"]] = (seq, str(mark.get("digest", "")))
        self.version = version

    def places(self, session: Session | None) -> list[int]:
        """The nodes to import. Entries that were removed or dropped by policy are not imported again."""
        everything = list(range(len(self.conversation.nodes)))
        if session is None or not (session.trimmed_through or session.dropped_through):
            return everything
        self.learn(session, version=session.version)
        stored = [place for place in everything if self.conversation.nodes[place].source_id in self.known]
        for place in stored:
            self.seqs[place] = self.known[self.conversation.nodes[place].source_id][0]
            self.numbers.add(place + 1, self.seqs[place])
        return everything[stored[-1] + 1 :] if stored else []

    def is_new(self, place: int) -> bool:
        node = self.conversation.nodes[place]
        if (stored := self.known.get(node.source_id)) is None:
            return True
        seq, digest = stored
        if (digest and digest != digest_of(node.entry)) or node.parent in self.renewed:
            self.renewed.add(place)
            return True
        self.seqs[place] = seq
        return False

    def appends(self, session_id: UUID, places: Sequence[int], *, next_seq: int) -> list[Append]:
        made: list[Append] = []
        for place in places:
            if self.is_new(place):
                node = self.conversation.nodes[place]
                self.seqs[place] = next_seq + len(made)
                mark = {"id": node.source_id} | ({"digest": digest_of(node.entry)} if place in self.tail else {})
                entry = mark_signatures(node.entry.renumbered(self.numbers))
                entry = replace(entry, metadata={MARK: mark, **entry.metadata})
                after = 0 if node.parent is None else self.seqs.get(node.parent, 0)
                made.append(Append(session_id, entry, after=after, recording=self.recording))
            self.numbers.add(place + 1, self.seqs[place])
        self.added += len(made)
        self.version += len(made)
        return made


def mark_signatures(entry: Entry) -> Entry:
    """Mark reasoning that was signed for another account: the vendor accepts it from that account only."""
    if not isinstance(entry, ModelOutput):
        return entry
    parts = tuple(
        replace(part, provider=f"{part.provider}, another account")
        if isinstance(part, Reasoning) and (part.signature or part.redacted)
        else part
        for part in entry.parts
    )
    return entry if parts == entry.parts else replace(entry, parts=parts)


def digest_of(entry: Entry) -> str:
    content = {name: value for name, value in entry_to_json(entry).items() if name != "at"}
    return hashlib.sha256(dump(content).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _move_head(session: Session, growth: _Growth, old_head: int) -> None:
    """Move the head to the leaf of the source, unless the session was continued here in the meantime."""
    nodes = growth.conversation.nodes
    leaf = growth.conversation.leaf if growth.conversation.leaf is not None else find_last_place(nodes)
    if leaf is None or leaf not in growth.seqs:
        return
    to = growth.seqs[leaf]
    is_unchanged = old_head == 0 or old_head in {seq for seq, _ in growth.known.values()}
    session.refresh_from_db()
    if is_unchanged and session.head != to:
        moved = HeadMoved(to=to, reason="import", at=nodes[leaf].entry.at)
        recorder.append(session, moved, after=to)
