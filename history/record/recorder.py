"""The one writer of the history: append, move the head, edit, fork, and set marks of a session.

Callers name the entry that they saw last. If another writer was faster, theirs becomes a branch and the head stays.
Stored entries are never edited: rollback, edit and regenerate append a `HeadMoved`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from history.access import audit
from history.access.permissions import Viewer
from history.context.messages import edges_of
from history.db import bulk
from history.db.transactions import writing
from history.entries import EMPTY, Entry, Gap, HeadMoved, Numbering
from history.errors import HistoryOff, NoSuchEntry
from history.models import ApiKey, Blob, Message, Session
from history.models.seals import title_mark_of
from history.record import writer
from history.record.expiry import expiry_of
from history.record.loading import read_nodes
from history.record.paths import Path, behind_notes
from history.record.row_builder import DraftRow, Prepared, SessionDraft
from history.redaction import stricter

COPIED_TOGETHER = 200  # entries, by a fork


class Appended(NamedTuple):
    """A stored entry. `moved_head` is false if it became a branch because another writer was faster."""

    seq: int
    message_id: int
    moved_head: bool


@dataclass(frozen=True, slots=True)
class Append:
    """An entry for `append_batch`. `after=None` means after the session's previous entry in the batch."""

    session_id: UUID
    entry: Entry
    after: int | None
    recording: str = "full"  # the key's mode at the call; the stricter of this and its mode now applies to the session
    prepared: Prepared | None = None  # the entry, redacted before the transaction begins


def start_session(
    *,
    owner: Any,
    api_key: ApiKey | None = None,
    source: str = Session.Source.CHAT,
    recording: str = "full",
    **fields: Any,
) -> Session:
    """Create an empty session. Its texts are redacted by the stricter of `recording` and the mode of the key."""
    refuse_when_off()
    fields = writer.kept_fields(fields, recording=stricter(recording, api_key.recording if api_key else recording))
    now = timezone.now()
    begun = fields.pop("created_at", None) or now
    session = Session(
        owner=owner,
        api_key=api_key,
        source=source,
        created_at=begun,
        last_activity_at=min(begun, now),
        stored_at=now,
        **bulk.fit_values(Session, fields),
    )
    session.expires_at = expiry_of(session)
    with writing():
        session.save(force_insert=True)
    return session


def append(session: Session, entry: Entry, *, after: int) -> Appended:
    """Store one entry after the one that its caller saw last (0 means the start)."""
    return append_many(session, [entry], after=after)[0]


def append_many(session: Session, entries: Sequence[Entry], *, after: int) -> list[Appended]:
    """Store a chain of entries in one transaction: the first after `after`, each other one after its predecessor."""
    refuse_when_off()
    with writing():
        draft = SessionDraft(writer.lock([session.pk])[session.pk])
        draft.leaf = after
        for entry in entries:
            _add(draft, entry, after=draft.leaf)
        writer.flush([draft])
        writer.save_sessions([draft.session])
    for name in writer.SESSION_STATE:
        setattr(session, name, getattr(draft.session, name))
    return [_appended(row) for row in draft.requested]


def append_behind(session: Session, entries: Sequence[Entry], *, after: int) -> list[Appended]:
    """Like `append_many`, but behind state entries that were set after `after` meanwhile, such as a summary."""
    refuse_when_off()
    with writing():
        writer.lock([session.pk])
        return append_many(session, entries, after=behind_notes(session.pk, after))


def append_batch(
    appends: Sequence[Append], *, new_sessions: Sequence[Session] = (), files: Mapping[str, bytes] = EMPTY
) -> list[Appended]:
    """Store entries of many sessions in one transaction, so that a busy writer shares the cost of a commit.

    `new_sessions` are stored with their entries. `files` are attachments that the entries may name, by their hash.
    """
    refuse_when_off()
    with writing():
        new = {session.pk: session for session in new_sessions}
        old = writer.lock({item.session_id for item in appends} - new.keys())
        sessions, modes = new | old, _strictest_modes(appends)
        drafts = {pk: SessionDraft(row, recording=modes.get(pk, "full"), files=files) for pk, row in sessions.items()}
        for item in appends:
            draft = drafts[item.session_id]
            after = draft.leaf if item.after is None else item.after
            _add(draft, item.entry, after=after, prepared=item.prepared)
        writer.insert_sessions(new_sessions)
        writer.flush(list(drafts.values()))
        writer.save_sessions(list(old.values()))
    written = {pk: iter(draft.requested) for pk, draft in drafts.items()}
    return [_appended(next(written[item.session_id])) for item in appends]


def move_head(session: Session, *, to: int, reason: str = "rollback", by: str = "") -> Appended:
    """Continue after entry `to` (0 means the start). Later entries stay, beside the path."""
    return append(session, HeadMoved(to=to, reason=reason, metadata={"by": by} if by else {}), after=to)


def edit(session: Session, *, seq: int, entry: Entry) -> Appended:
    parent = _parent_of(session, seq)
    return append_many(session, [HeadMoved(to=parent, reason="edit"), entry], after=parent)[-1]


def regenerate(session: Session, *, seq: int) -> int:
    """Move the head before answer `seq`. Returns the entry that the next answer will follow."""
    parent = _parent_of(session, seq)
    move_head(session, to=parent, reason="regenerate")
    return parent


def fork(session: Session, *, at: int, owner: Any) -> Session:
    """A new session with a copy of the path to entry `at`.

    It is `incomplete` until its last entry is stored: not shown, and removed by a purge if the process dies.
    """
    with writing():
        original = writer.lock([session.pk])[session.pk]
        if at and not writer.is_place(session, at):
            raise NoSuchEntry(f"session {session.pk} has no entry {at} to fork at")
        path = Path(session.pk, leaf=at)
        numbers = path.numbers()
        edges = edges_of(path.state(read_nodes)) if original.trimmed_through else ()
        copy = start_session(
            owner=owner,
            api_key=session.api_key if session.owner_id == owner.pk else None,
            source=session.source,
            client=session.client,
            agent=session.agent,
            workspace=session.workspace,
            title=original.title,
            forked_from=session,
            forked_at=at,
            state=Session.State.INCOMPLETE,
        )
    _copy_entries(original, numbers, edges=edges, to=copy.pk)
    copy.refresh_from_db()
    return copy


def _copy_entries(original: Session, numbers: Sequence[int], *, edges: Sequence[int], to: UUID) -> None:
    """Copy these entries in batches, because SQLite has one writer, and open the session.

    Entries never change, so no append or moved head can make the copy wrong. Raises NoSuchEntry if one of them is gone.
    `edges` are the numbers at which summaries begin and end (`edges_of`). Trimmed entries become a gap, and one more at
    each edge, so that each summary has a range of its own in the copy, as it had before.
    """
    copied = Numbering()
    for start in range(0, len(numbers), COPIED_TOGETHER):
        batch = numbers[start : start + COPIED_TOGETHER]
        # Read outside of the transaction, so that others can write in between.
        nodes = Path(original.pk).numbered(batch, read_nodes)
        if len(nodes) < len(batch):
            raise NoSuchEntry(f"entries of session {original.pk} were removed during the copy: fork it again")
        with writing():
            draft = SessionDraft(writer.lock([to], incomplete=True)[to], is_verbatim=True)
            for node in nodes:
                first = copied.last + 1
                trimmed = [first, *(edge for edge in edges if first < edge < node.seq)]
                for number in trimmed if node.parent != copied.last else ():
                    draft.add(Gap(reason="trimmed before the fork", at=node.entry.at), after=draft.leaf)
                    copied.add(number, draft.leaf)
                draft.add(node.entry.renumbered(copied), after=draft.leaf)
                copied.add(node.seq, draft.leaf)
            writer.flush([draft])
            writer.save_sessions([draft.session])
    with writing():
        writer.lock([to], incomplete=True)
        writer.change(to, state=Session.State.OPEN)


def rename(session: Session, *, title: str, by: Viewer | None = None) -> None:
    """Set a title, redacted as the key of the session requires. `by` is a user or a key, by default the owner."""
    _set_text(session, "title", " ".join(title.split()))
    who = audit.who(by) if by else {"actor": session.owner_id}
    with writing():
        writer.change(session.pk, title=session.title, marked_at=timezone.now())
        audit.record("rename", session=session.pk, title=title_mark_of(session.pk, session.title).hex(), **who)


def assign(session: Session, *, agent: str) -> None:
    """Set the agent that answers in this session by default."""
    _set_text(session, "agent", agent)
    with writing():
        writer.change(session.pk, agent=session.agent, marked_at=timezone.now())


def _set_text(session: Session, name: str, text: str) -> None:
    mode = session.api_key.recording if session.api_key else "full"
    setattr(session, name, bulk.fit_text(Session, name, writer.kept_fields({name: text}, recording=mode)[name]))


def pin(session: Session, *, pinned: bool) -> None:
    _mark(session, "pinned_at", pinned)


def archive(session: Session, *, archived: bool) -> None:
    _mark(session, "archived_at", archived)


def _mark(session: Session, name: str, is_on: bool) -> None:
    now = timezone.now()
    setattr(session, name, now if is_on else None)
    with writing():
        writer.change(session.pk, **{name: getattr(session, name)}, marked_at=now)


def store_blob(content: bytes, *, media_type: str) -> str:
    """Store an attachment. Returns the hash that a `Media` part names. Blobs that no entry uses are purged later."""
    refuse_when_off()
    name = sha256(content).hexdigest()
    with writing():
        writer.store_blobs([writer.new_blob(name, content, media_type=media_type)])
        # Else the next purge would remove an old unused blob before an entry names it.
        Blob.objects.filter(pk=name).update(created_at=timezone.now())
    return name


def renew_blobs(names: Collection[str]) -> frozenset[str]:
    """The hashes of those attachments that are still stored. A purge spares them for another hour."""
    with writing():
        Blob.objects.filter(pk__in=names).update(created_at=timezone.now())
        return frozenset(Blob.objects.filter(pk__in=names).values_list("pk", flat=True))


def refuse_when_off() -> None:
    if not settings.CHAT_HISTORY_ENABLED:
        raise HistoryOff("history is off (CHAT_HISTORY_ENABLED=false): nothing is written")


def _strictest_modes(appends: Sequence[Append]) -> dict[UUID, str]:
    modes: dict[UUID, str] = {}
    for item in appends:
        if item.recording != modes.setdefault(item.session_id, item.recording):
            modes[item.session_id] = stricter(modes[item.session_id], item.recording)
    return modes


def _add(draft: SessionDraft, entry: Entry, *, after: int, prepared: Prepared | None = None) -> None:
    if isinstance(entry, HeadMoved):
        writer.flush([draft])
        writer.move_head(draft.session, to=entry.to)
        draft.add_move(entry, prepared=prepared)
    else:
        draft.add(entry, after=after, prepared=prepared)


def _appended(row: DraftRow) -> Appended:
    return Appended(row.message.seq, row.message.pk, row.message.moved_head)


def _parent_of(session: Session, seq: int) -> int:
    parent = Message.objects.at(session, seq).values_list("parent_seq", flat=True).first()
    if parent is None:
        raise NoSuchEntry(f"session {session.pk} has no entry {seq}")
    return parent
