"""Storage of an imported conversation; repeated imports add only what is new.

The session's id is made from its owner, the product and the source's id, so the same conversation finds its session;
one that its owner deleted does not stand in the way of importing it anew. A key that sees only its own sessions
(`under`) has ids, and so sessions, of its own. Entries know the id that they have in their source
(`metadata["import"]["id"]`): those that are there already are left alone, and the others are appended after their
parents. The last entries of a conversation may not have been finished when it was imported: they carry a digest
besides, and one that says something else now is appended as another version.

A short conversation is one transaction. A long one is written some hundred entries at a time, each time under the lock
of its session, so two imports of the same file at once do not double it, and one that dies is continued by the next.
"""

from __future__ import annotations

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
from history.formats.base import Conversation, SourceNode
from history.formats.trees import find_last_place
from history.importing.reports import ImportOutcome
from history.models import ApiKey, Message, Session
from history.record import recorder, writer
from history.record.recorder import Append

NAMESPACE = UUID("6d0d9c1e-6e0b-5c0b-9d52-1f0f6a9f2b11")
BATCH = 200
MARK = "import"


@dataclass(frozen=True, slots=True)
class StoredConversation:
    session_id: UUID
    outcome: ImportOutcome
    entries: int


def id_for(owner: Any, *, client: str, source_id: str, attempt: int = 0, under: ApiKey | None = None) -> UUID:
    whose = f"{owner.pk}" if under is None else f"{owner.pk} {under.pk}"
    return uuid5(NAMESPACE, f"{whose}\n{client}\n{source_id}\n{attempt}")


def find(owner: Any, *, client: str, source_id: str, under: ApiKey | None) -> tuple[UUID, Session | None]:
    """The session of a conversation, or the id that it will have: the first that was not deleted."""
    attempt = 0
    while True:
        name = id_for(owner, client=client, source_id=source_id, attempt=attempt, under=under)
        session = Session.objects.filter(pk=name).first()
        if session is None or session.hidden_at is None:
            return name, session
        attempt += 1


def store(
    conversation: Conversation, *, owner: Any, under: ApiKey | None = None, recording: str = "full"
) -> Generator[None, None, StoredConversation]:
    """Import it, or what of it is not there yet. Other writers may continue between the batches of a long one.

    `recording` is the mode of the key that sends it, also where the session is not recorded under that key.
    """
    try:
        return (yield from _store_together(conversation, owner=owner, under=under, recording=recording))
    except IntegrityError:  # another import has just begun the same session
        return (yield from _store_together(conversation, owner=owner, under=under, recording=recording))


def _store_together(
    conversation: Conversation, *, owner: Any, under: ApiKey | None, recording: str
) -> Generator[None, None, StoredConversation]:
    is_short = len(conversation.nodes) <= BATCH
    with writing() if is_short else nullcontext():
        return (yield from _store(conversation, owner=owner, under=under, recording=recording))


def look(conversation: Conversation, *, owner: Any, under: ApiKey | None = None) -> StoredConversation:
    """What `store` would do; nothing is written."""
    name, session = find(owner, client=conversation.client, source_id=conversation.source_id, under=under)
    growth = _Growth(conversation)
    if session:
        growth.learn(session, version=session.version)
    fresh = sum(growth.is_fresh(place) for place in growth.places(session))
    return StoredConversation(name, _outcome(session, fresh), fresh)


def link(owner: Any, *, child: UUID, client: str, parent_id: str, under: ApiKey | None = None) -> bool:
    """Tell a session which one started it; False: that one is not there (yet)."""
    _, parent = find(owner, client=client, source_id=parent_id, under=under)
    if parent is None or parent.pk == child:
        return False
    with writing():
        Session.objects.filter(pk=child, parent=None).update(parent=parent)
    return True


def _store(
    conversation: Conversation, *, owner: Any, under: ApiKey | None, recording: str
) -> Generator[None, None, StoredConversation]:
    name, session = find(owner, client=conversation.client, source_id=conversation.source_id, under=under)
    before = session
    if session is None:
        session = _started(conversation, name, owner=owner, under=under, recording=recording)
    growth = _Growth(conversation, recording=recording)
    stood_at = session.head
    places = growth.places(before)
    for start in range(0, len(places), BATCH):
        if start:
            yield
        _append(session, growth, places[start : start + BATCH])
    if growth.added:
        _stand(session, growth, stood_at)
    return StoredConversation(session.pk, _outcome(before, growth.added), growth.added)


def _outcome(before: Session | None, added: int) -> ImportOutcome:
    if before is None:
        return ImportOutcome.IMPORTED
    return ImportOutcome.GROWN if added else ImportOutcome.THERE


def _started(conversation: Conversation, name: UUID, *, owner: Any, under: ApiKey | None, recording: str) -> Session:
    facts = {"id": conversation.source_id, **conversation.metadata}
    if conversation.parent_id:
        facts["parent"] = conversation.parent_id
    return recorder.start_session(
        id=name,
        owner=owner,
        api_key=under,
        source=Session.Source.IMPORT,
        recording=recording,
        client=conversation.client,
        title=" ".join(conversation.title.split()),
        agent=conversation.agent,
        model=conversation.model,
        workspace=conversation.workspace,
        created_at=conversation.created_at,
        parent_call=conversation.parent_call,
        metadata={MARK: facts},
    )


def _append(session: Session, growth: _Growth, places: Sequence[int]) -> None:
    """The entries of these nodes that are not there. What is there is asked under the lock."""
    with writing():
        locked = writer.lock([session.pk])[session.pk]
        growth.learn(session, version=locked.version)
        appends = growth.appends(session.pk, places, next_seq=locked.version + 1)
        if appends:
            recorder.append_batch(appends, files=growth.conversation.blobs)


def _known(session: Session, *, after: int = 0) -> dict[str, tuple[int, str]]:
    """Source id → the newest entry that has it, and what it said if it may not have been finished."""
    rows = Message.objects.of(session).filter(seq__gt=after, metadata__has_key=MARK).order_by("seq")
    found: dict[str, tuple[int, str]] = {}
    for seq, metadata in rows.values_list("seq", "metadata").iterator(chunk_size=2_000):
        mark = metadata.get(MARK)
        if isinstance(mark, Mapping) and isinstance(mark.get("id"), str):
            found[mark["id"]] = (seq, str(mark.get("digest", "")))
    return found


@dataclass
class _Growth:
    """Which nodes of a conversation are there, under which numbers, and which are new."""

    conversation: Conversation
    recording: str = "full"
    known: dict[str, tuple[int, str]] = field(default_factory=dict)
    version: int = 0  # of the session, up to which `known` is what there is
    seqs: dict[int, int] = field(default_factory=dict)  # node → its number
    renewed: set[int] = field(default_factory=set)  # nodes that are stored again, with all that follows them
    added: int = 0

    def __post_init__(self) -> None:
        self.tail = _tail(self.conversation.nodes)
        self.numbers = Numbering()

    def learn(self, session: Session, *, version: int) -> None:
        """What the session has by now, by whomever."""
        if version > self.version:
            self.known |= _known(session, after=self.version)
            self.version = version

    def places(self, session: Session | None) -> list[int]:
        """The nodes to look at. Where old entries were removed or emptied by policy, they are not brought back."""
        everything = list(range(len(self.conversation.nodes)))
        if session is None or not (session.trimmed_through or session.dropped_through):
            return everything
        self.learn(session, version=session.version)
        there = [place for place in everything if self.conversation.nodes[place].source_id in self.known]
        for place in there:
            self.seqs[place] = self.known[self.conversation.nodes[place].source_id][0]
            self.numbers.add(place + 1, self.seqs[place])
        return everything[there[-1] + 1 :] if there else []

    def is_fresh(self, place: int) -> bool:
        node = self.conversation.nodes[place]
        there = self.known.get(node.source_id)
        is_changed = there is not None and bool(there[1]) and there[1] != digest_of(node.entry)
        if there is None or is_changed or node.parent in self.renewed:
            if there is not None:
                self.renewed.add(place)
            return True
        self.seqs[place] = there[0]
        return False

    def appends(self, session_id: UUID, places: Sequence[int], *, next_seq: int) -> list[Append]:
        made: list[Append] = []
        for place in places:
            if self.is_fresh(place):
                node = self.conversation.nodes[place]
                self.seqs[place] = next_seq + len(made)
                marked = self._marked(place, node)
                made.append(Append(session_id, marked, after=self._after(node), promised=self.recording))
            self.numbers.add(place + 1, self.seqs[place])
        self.added += len(made)
        self.version += len(made)
        return made

    def _after(self, node: SourceNode) -> int:
        return 0 if node.parent is None else self.seqs.get(node.parent, 0)

    def _marked(self, place: int, node: SourceNode) -> Entry:
        mark = {"id": node.source_id} | ({"digest": digest_of(node.entry)} if place in self.tail else {})
        entry = signed_elsewhere(node.entry.renumbered(self.numbers))
        return replace(entry, metadata={MARK: mark, **entry.metadata})


def _tail(nodes: Sequence[SourceNode]) -> set[int]:
    """The ends of all branches, and what they follow: where a conversation may not have been finished."""
    inner = {node.parent for node in nodes if node.parent is not None}
    ends = {place for place in range(len(nodes)) if place not in inner}
    return ends | {parent for place in ends if (parent := nodes[place].parent) is not None}


def signed_elsewhere(entry: Entry) -> Entry:
    """Drop reasoning signed for another account: the vendor accepts it from that account only."""
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
    said = {name: value for name, value in entry_to_json(entry).items() if name != "at"}
    return hashlib.sha256(dump(said).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _stand(session: Session, growth: _Growth, stood_at: int) -> None:
    """The head goes where the source stands, unless the session was continued here in the meantime."""
    nodes = growth.conversation.nodes
    leaf = growth.conversation.leaf if growth.conversation.leaf is not None else find_last_place(nodes)
    if leaf is None or leaf not in growth.seqs:
        return
    to = growth.seqs[leaf]
    was_ours = stood_at == 0 or stood_at in {seq for seq, _ in growth.known.values()}
    session.refresh_from_db()
    if was_ours and session.head != to:
        moved = HeadMoved(to=to, reason="import", at=nodes[leaf].entry.at)
        recorder.append(session, moved, after=to)
