"""The one writer. Nothing else appends to a history.

`append` takes an entry and the number of the entry that its writer saw last. If that is the head, the head moves on;
if somebody else was faster, the entry becomes a branch beside theirs, the head stays, and the caller is told. Either
way the entry is stored, sealed, counted and searchable when the call returns, all in one transaction.

A history is never edited: rolling back, editing and asking again move the head (`HeadMoved`) and append; forking copies
the path into a session of its own.

    recorder (what can be done) → drafts (what the rows will say) → storage (the rows)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone

from history.access import audit
from history.context import edges_of
from history.db import bulk
from history.db.transactions import writing
from history.entries import EMPTY, Entry, HeadMoved
from history.errors import HistoryOff, NoSuchEntry
from history.models import COPY_UNFINISHED, ApiKey, Blob, Message, Session
from history.models.seals import title_mark_of
from history.record import writer
from history.record.branches import behind_notes
from history.record.expiry import expiry_of
from history.record.forking import copy_entries
from history.record.loading import read_nodes
from history.record.paths import Path
from history.record.row_builder import Draft, DraftRow, Prepared
from history.redaction import stricter


@dataclass(frozen=True, slots=True)
class Appended:
    """Where the entry stands now. `moved_head` is false when it became a branch beside somebody else's."""

    seq: int
    message_id: int
    moved_head: bool


@dataclass(frozen=True, slots=True)
class Append:
    """One wish to append, for `append_batch`. `after=None`: after the session's entry before it in the batch.

    `promised` is the recording mode that its writer was told: where that of the key has changed since, the stricter of
    the two is obeyed, for all that the batch adds to the session.
    """

    session_id: UUID
    entry: Entry
    after: int | None
    promised: str = "full"
    # The entry redacted beforehand, so that the transaction does not wait for it.
    prepared: Prepared | None = None


def start_session(
    *,
    owner: Any,
    api_key: ApiKey | None = None,
    source: str = Session.Source.CHAT,
    recording: str = "full",
    **fields: Any,
) -> Session:
    """A new, empty session. Until when it is kept is decided now, and again with every entry.

    The stricter of `recording` and the mode of the key says what is kept of title, names and metadata.
    """
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
    """Store one entry after the one that its writer saw last (0: the start)."""
    return append_many(session, [entry], after=after)[0]


def append_many(session: Session, entries: Sequence[Entry], *, after: int) -> list[Appended]:
    """Store a chain: the first after `after`, each further one after the one before. All of it or nothing."""
    refuse_when_off()
    with writing():
        draft = Draft(writer.lock([session.pk])[session.pk])
        draft.leaf = after
        for entry in entries:
            _add(draft, entry, after=draft.leaf)
        writer.flush([draft])
        writer.save_sessions([draft.session])
    _copy_state(draft.session, to=session)
    return [_appended(draft.rows[place]) for place in draft.asked_for]


def append_behind(session: Session, entries: Sequence[Entry], *, after: int) -> list[Appended]:
    """The same, behind what somebody set right after `after` meanwhile: a summary, or what takes one back."""
    refuse_when_off()
    with writing():
        writer.lock([session.pk])
        return append_many(session, entries, after=behind_notes(session.pk, after))


def append_batch(
    wishes: Sequence[Append], *, begun: Sequence[Session] = (), files: Mapping[str, bytes] = EMPTY
) -> list[Appended]:
    """Store entries of many sessions in one transaction: so a busy writer shares the cost of a commit.

    `begun` are sessions that are not stored yet; each becomes a row once, when its entries are counted. `files` are
    attachments by their hash: those that the entries name are stored, as their sessions may keep them.
    """
    refuse_when_off()
    with writing():
        new = {session.pk: session for session in begun}
        old = writer.lock({wish.session_id for wish in wishes} - new.keys())
        promised = _strictest(wishes)
        drafts = {
            pk: Draft(session, promised=promised.get(pk, "full"), given=files) for pk, session in (new | old).items()
        }
        for wish in wishes:
            draft = drafts[wish.session_id]
            after = draft.leaf if wish.after is None else wish.after
            _add(draft, wish.entry, after=after, prepared=wish.prepared)
        writer.insert_sessions(begun)
        writer.flush(list(drafts.values()))
        writer.save_sessions(list(old.values()))
    written = {pk: iter(draft.asked_for) for pk, draft in drafts.items()}
    return [_appended(drafts[wish.session_id].rows[next(written[wish.session_id])]) for wish in wishes]


def move_head(session: Session, *, to: int, reason: str = "rollback", by: str = "") -> Appended:
    """Continue after entry `to` (0: from the start). What came after it stays, beside the path."""
    return append(session, HeadMoved(to=to, reason=reason, metadata={"by": by} if by else {}), after=to)


def edit(session: Session, *, seq: int, entry: Entry) -> Appended:
    """Say entry `seq` differently: a branch beside it, which becomes the path."""
    parent = _parent_of(session, seq)
    return append_many(session, [HeadMoved(to=parent, reason="edit"), entry], after=parent)[-1]


def regenerate(session: Session, *, seq: int) -> int:
    """Go back before answer `seq` so that another can be given; returns the entry that it will follow."""
    parent = _parent_of(session, seq)
    move_head(session, to=parent, reason="regenerate")
    return parent


def fork(session: Session, *, at: int, owner: Any) -> Session:
    """A new session that begins as a copy of the path to entry `at`. The two share nothing afterwards.

    What was trimmed from the original is a Gap in the copy, and a summary that stood for it stands for the Gap; where
    there were several, each for one of its own. Until the copy is whole, nobody is served it.
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
            hidden_at=COPY_UNFINISHED,
        )
    copy_entries(original, numbers, edges=edges, to=copy.pk)
    copy.refresh_from_db()
    return copy


def rename(session: Session, *, title: str, by: Any = None) -> None:
    """Give it a title by hand, as its key lets texts be kept. `by` is a user or a key; without it, the owner."""
    session.title = writer.kept_title(title, api_key=session.api_key)
    who = {"key": by.pk} if isinstance(by, ApiKey) else {"actor": by.pk if by else session.owner_id}
    with writing():
        writer.change(session.pk, title=session.title, marked_at=timezone.now())
        audit.record("rename", session=session.pk, title=title_mark_of(session.pk, session.title).hex(), **who)


def assign(session: Session, *, agent: str) -> None:
    """From now on this agent answers here, unless a message asks for another."""
    mode = session.api_key.recording if session.api_key else "full"
    session.agent = bulk.fit_text(Session, "agent", writer.kept_fields({"agent": agent}, recording=mode)["agent"])
    with writing():
        writer.change(session.pk, agent=session.agent, marked_at=timezone.now())


def pin(session: Session, *, pinned: bool) -> None:
    """Keep it at the top of its owner's list, or let it go where its activity puts it."""
    _mark(session, "pinned_at", pinned)


def archive(session: Session, *, archived: bool) -> None:
    """Out of its owner's list, or back into it; nothing else changes."""
    _mark(session, "archived_at", archived)


def _mark(session: Session, name: str, is_on: bool) -> None:
    now = timezone.now()
    setattr(session, name, now if is_on else None)
    with writing():
        writer.change(session.pk, **{name: getattr(session, name)}, marked_at=now)


def store_blob(content: bytes, *, media_type: str) -> str:
    """Keep an attachment; its hash is what a `Media` part names. One that no entry uses is removed after a while."""
    refuse_when_off()
    name = sha256(content).hexdigest()
    with writing():
        writer.store_blobs([writer.new_blob(name, content, media_type=media_type)])
        # One that was stored long ago and used by nobody would otherwise go with the next purge, before it is named.
        Blob.objects.filter(pk=name).update(created_at=timezone.now())
    return name


def keep_blobs(names: Collection[str]) -> frozenset[str]:
    """Those of these attachments that are still there; a purge leaves them alone for another while."""
    with writing():
        Blob.objects.filter(pk__in=names).update(created_at=timezone.now())
        return frozenset(Blob.objects.filter(pk__in=names).values_list("pk", flat=True))


def refuse_when_off() -> None:
    if not settings.CHAT_HISTORY_ENABLED:
        raise HistoryOff("history is off (CHAT_HISTORY_ENABLED=false): nothing is written")


def _strictest(wishes: Sequence[Append]) -> dict[UUID, str]:
    modes: dict[UUID, str] = {}
    for wish in wishes:
        if wish.promised != modes.setdefault(wish.session_id, wish.promised):
            modes[wish.session_id] = stricter(modes[wish.session_id], wish.promised)
    return modes


def _add(draft: Draft, entry: Entry, *, after: int, prepared: Prepared | None = None) -> None:
    if isinstance(entry, HeadMoved):
        writer.flush([draft])
        writer.move_head(draft.session, to=entry.to)
        draft.add_move(entry, prepared=prepared)
    else:
        draft.add(entry, after=after, prepared=prepared)


def _appended(row: DraftRow) -> Appended:
    return Appended(row.message.seq, row.message.pk, row.message.moved_head)


def _copy_state(written: Session, *, to: Session) -> None:
    """The caller's own instance shows what was written."""
    for name in writer.SESSION_STATE:
        setattr(to, name, getattr(written, name))


def _parent_of(session: Session, seq: int) -> int:
    parent = Message.objects.at(session, seq).values_list("parent_seq", flat=True).first()
    if parent is None:
        raise NoSuchEntry(f"session {session.pk} has no entry {seq}")
    return parent
