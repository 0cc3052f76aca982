"""Storage of a batch of restored sessions in one transaction, entries with their numbers, salts, times and seals.

A session is `incomplete` until its last entry is stored: it is not shown, and the purge removes what is left of it.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID

from django.utils import timezone

from history.access import audit
from history.db.packing import Packed, blobs_in, dump
from history.db.transactions import writing
from history.dialects.json_access import objs
from history.entries import CONVERSATION, NEVER_PARENTS, Gap, HeadMoved, JsonDict, JsonObject
from history.formats.base import FormatError, Notes
from history.formats.jsonl.lines import id_of, parse_exchange
from history.formats.jsonl.owners import OwnerMap
from history.formats.jsonl.reading import RestoredEntry, SessionBuffer
from history.models import Blob, EarlierTry, Exchange, Message, Session, ToolCall
from history.models.append_only import writable
from history.models.seals import title_mark_of
from history.record import daily_counts, fingerprints, projections, row_builder, writer
from history.record.row_builder import DraftRow, ParentState, SessionDraft, advance, next_parent_state
from history.retention import removal
from history.text.lazy import gettext_noop as _

FACTS = ("model", "metadata", "cost", "last_activity_at")
MARKS = ("title", "agent", "pinned_at", "archived_at", "marked_at")


def store(batch: Sequence[SessionBuffer], *, blobs: Sequence[Blob], owners: OwnerMap) -> None:
    """All of it or nothing."""
    with writing():
        if blobs:
            writer.store_blobs(blobs)
        accepted = [buffer for buffer in batch if not buffer.refused]
        for buffer in accepted:
            if buffer.stored_session is None and not buffer.is_stored:
                fields = {**buffer.fields, "state": Session.State.INCOMPLETE, "hidden_at": None}
                fields |= {"version": buffer.trimmed_through, "last_seal": fields["anchor_seal"]}
                session = Session(pk=buffer.id, owner=buffer.owner, api_key=buffer.key, **fields)
                session.stored_at = timezone.now()
                session.save(force_insert=True)
        _insert_entries(accepted)
        for buffer in accepted:
            _store_exchanges(buffer, owners)
            if buffer.is_over:
                _finish(buffer, owners)
    for buffer in accepted:
        buffer.is_stored = True
        buffer.stored_count += len(buffer.entries)


def remove_interrupted_restore(session_id: UUID) -> None:
    begun = Session.objects.filter(pk=session_id, state=Session.State.INCOMPLETE)
    for pk in removal.mark(begun, why="unfinished"):
        for _batch in removal.finish([pk]):
            pass


def _insert_entries(batch: Sequence[SessionBuffer]) -> None:
    with_entries = [buffer for buffer in batch if buffer.entries]
    locked = writer.lock([buffer.id for buffer in with_entries], incomplete=True) if with_entries else {}
    inserters = {pk: _EntryInserter(session) for pk, session in locked.items()}
    for buffer in with_entries:
        for restored in buffer.entries:
            inserters[buffer.id].insert(restored)
    _write(*inserters.values())
    writer.save_sessions([inserter.session for inserter in inserters.values()])
    for buffer in with_entries:
        if buffer.is_over:
            inserters[buffer.id].close()


class _EntryInserter(SessionDraft):
    """Inserts entries into a locked session, oldest first. Head, path and calls follow the rules of the recorder."""

    def __post_init__(self) -> None:
        session = self.session
        self.leaf = session.head
        self.scope = fingerprints.scope_of(api_key_id=session.api_key_id, owner_id=session.owner_id)
        self.parent_states: dict[int, ParentState] = {}
        self.calls: list[tuple[Message, JsonDict]] = []  # of entries without texts, to be written with them

    def insert(self, restored: RestoredEntry) -> None:
        session, row = self.session, restored.row
        if row.seq <= session.trimmed_through:
            row.on_path = True
            self._put_row(restored, ParentState(fingerprints.START))
            return
        is_move, is_leaf = row.kind == HeadMoved.kind, row.kind in NEVER_PARENTS
        if is_move:
            self._move_head(row.parent_seq)
        parent_state = self.parent_state_of(row.parent_seq)
        # Only the entry knows where the head was before the first entry that is left after a trim.
        is_first = session.trimmed_through and session.head == 0 and row.parent_seq <= session.trimmed_through
        row.on_path = not is_leaf and (row.moved_head if is_first else row.parent_seq == session.head)
        row.moved_head = row.on_path or is_move
        self._put_row(restored, parent_state)
        session.version, session.last_seal = row.seq, row.seal
        if is_leaf:
            return
        calls = [(call["call_id"], call["name"]) for call in restored.calls]
        calls += projections.calls_in(restored.entry) if restored.entry is not None else []
        self.parent_states[row.seq] = parent_state = next_parent_state(parent_state, row, calls=calls)
        if row.on_path:
            advance(session, parent_state=parent_state, seq=row.seq, is_message=row.is_message)

    def close(self) -> None:
        """Mark whether the entries before the anchor of a trim are on the path: that is known only at the end."""
        session = self.session
        if not session.trimmed_through:
            return
        entries = Message.objects.of(session)
        path = entries.filter(on_path=True, seq__gt=session.trimmed_through).order_by("seq")
        first = path.values_list("parent_seq", flat=True).first() or 0
        is_anchored = 0 < (first or session.head) <= session.trimmed_through
        wrong = entries.filter(seq__lte=session.trimmed_through).exclude(on_path=is_anchored)
        writable(wrong).update(on_path=is_anchored)

    def parent_state_of(self, seq: int) -> ParentState:
        if seq <= self.session.trimmed_through:
            return ParentState(fingerprints.START)
        if seq not in self.parent_states:
            _write(self)  # it may be among the rows that are not written yet
            self.parent_states[seq] = row_builder.load_parent_state(self.session, seq)
        return self.parent_states[seq]

    def _move_head(self, to: int) -> None:
        _write(self)
        session = self.session
        if not 0 < to <= session.trimmed_through:
            writer.move_head(session, to=to)
            return
        path = Message.objects.on_path(session).filter(seq__gt=session.trimmed_through)
        writable(path).update(on_path=False)
        session.head, session.message_count, session.head_has_open_calls = to, 0, False
        session.head_fingerprint = fingerprints.START

    def _put_row(self, restored: RestoredEntry, parent_state: ParentState) -> None:
        row, session = restored.row, self.session
        row.session, row.pk = session, None  # an attempt that was rolled back may have set it
        if restored.entry is not None:
            row.fingerprint = fingerprints.fingerprint(restored.entry, after=parent_state.fingerprint, scope=self.scope)
        elif row.kind in CONVERSATION:
            row.fingerprint = fingerprints.unmatchable_fingerprint(session.pk, row.seq)
        else:
            row.fingerprint = parent_state.fingerprint
        # An entry without texts is neither searched nor does it call or answer: a gap, for the projections.
        entry = restored.entry or Gap(at=row.created_at)
        self.rows.append(DraftRow(row, entry, Packed(row.body or "", {}, restored.blobs), parent_state))
        self.calls += [(row, call) for call in restored.calls]
        row_builder.count_entry(session, row, restored.entry)
        session.tool_call_count += len(restored.calls)


def _write(*inserters: _EntryInserter) -> None:
    """Write the rows so far, and the calls whose texts were dropped."""
    writer.flush(inserters)
    for inserter in inserters:
        session, calls = inserter.session, inserter.calls
        writer.insert_calls([ToolCall(session=session, message=message, **call) for message, call in calls])
        calls.clear()


def _store_exchanges(buffer: SessionBuffer, owners: OwnerMap) -> None:
    if not buffer.exchanges:
        return
    numbers = {facts["message"] for facts in buffer.exchanges if facts.get("message")}
    messages = dict(Message.objects.of(buffer.id).filter(seq__in=numbers).values_list("seq", "pk"))
    ids = owners.exchange_ids(id_of(facts, "id") for facts in buffer.exchanges)
    made = [_exchange(facts, buffer, owners, messages, ids) for facts in buffer.exchanges]
    Session.objects.lock(buffer.id)  # one restore at a time
    with daily_counts.recounting(exchanges=Exchange.objects.filter(pk__in=[exchange.pk for exchange in made])):
        Exchange.objects.bulk_create(made, ignore_conflicts=True)
    ours = set(Exchange.objects.filter(session=buffer.id, pk__in=[e.pk for e in made]).values_list("pk", flat=True))
    _store_tries([exchange for exchange in made if exchange.pk in ours])
    wanted = {(e.pk, name) for e in made if e.pk in ours for name in blobs_in(dump(e.inputs))}
    permitted = owners.blobs({name for _, name in wanted})
    through = Exchange.blobs.through
    links = [through(exchange_id=pk, blob_id=name) for pk, name in sorted(wanted) if name in permitted]
    through.objects.bulk_create(links, ignore_conflicts=True)
    if len(links) < len(wanted):
        buffer.notes("lost", _("texts of model calls are missing from the file"))


def _store_tries(exchanges: Sequence[Exchange]) -> None:
    """Link the ids of a client's earlier tries to their exchange, unless this server has exchanges with these ids."""
    tries: dict[UUID, UUID] = {}
    for exchange in exchanges:
        for one in objs(exchange.metadata.get("retried")):
            with suppress(FormatError):
                tries[id_of(one, "exchange")] = exchange.pk
    existing = set(Exchange.objects.filter(pk__in=tries).values_list("pk", flat=True))
    rows = [EarlierTry(pk=name, exchange_id=pk) for name, pk in tries.items() if name not in existing]
    EarlierTry.objects.bulk_create(rows, ignore_conflicts=True)


def store_sessionless_exchange(facts: JsonObject, owners: OwnerMap) -> None:
    owner, fields = owners.find_owner(facts.get("owner")), parse_exchange(facts)
    [fields["id"]] = owners.exchange_ids([fields["id"]]).values()
    if Exchange.objects.filter(pk=fields["id"]).exists():
        return
    with writing():
        key = owners.key(facts.get("key"), owner=owner, notes=Notes())
        exchange = Exchange(owner=owner, api_key=key, heartbeat_at=fields["ended_at"], **fields)
        with daily_counts.recounting(exchanges=Exchange.objects.filter(pk=exchange.pk)):
            exchange.save(force_insert=True)
        if names := blobs_in(dump(exchange.inputs)):
            exchange.blobs.add(*Blob.objects.filter(pk__in=owners.blobs(names)))


def _exchange(
    facts: JsonObject, buffer: SessionBuffer, owners: OwnerMap, messages: Mapping[int, int], ids: Mapping[UUID, UUID]
) -> Exchange:
    try:
        owner = owners.find_owner(facts["owner"]) if "owner" in facts else buffer.owner
    except FormatError:
        buffer.notes("lost", _("caller of a model call: replaced by the owner"), where=str(facts["owner"]))
        owner = buffer.owner
    key = owners.key(facts["key"], owner=owner, notes=buffer.notes) if "key" in facts else buffer.key
    fields = parse_exchange(facts)
    fields["id"] = ids[fields["id"]]
    return Exchange(
        session_id=buffer.id,
        owner=owner,
        api_key=key,
        message_id=messages.get(facts.get("message") or 0),
        heartbeat_at=fields["ended_at"],
        **fields,
    )


def _finish(buffer: SessionBuffer, owners: OwnerMap) -> None:
    """Record removals on purpose in the audit chain, and make the session visible."""
    if not owners.is_operator and (restored_count := buffer.stored_count + len(buffer.entries)):
        # The file may say anything: the audit chain keeps that these entries were not recorded here.
        audit.record("restore", actor=buffer.owner.pk, session=buffer.id, entries=restored_count, through=buffer.last)
    count, through = buffer.dropped
    if count:
        audit.record("drop", session=buffer.id, through=through, entries=count, restored=True)
    if buffer.stored_session is None:
        if buffer.trimmed_through:
            seal = buffer.fields["anchor_seal"].hex()
            trimmed = {"through": buffer.trimmed_through, "entries": 0, "seal": seal, "kept": buffer.kept}
            audit.record("trim", session=buffer.id, restored=True, **trimmed)
        if buffer.fields.get("hold"):  # hold and deletion are verified with the audit chain
            audit.record("hold", session=buffer.id, restored=True)
        if hidden_at := buffer.fields.get("hidden_at"):
            audit.record("hide", session=buffer.id, restored=True, hidden_at=hidden_at.isoformat())
        state = Session.State.DELETED if hidden_at else Session.State.OPEN
        writer.change(buffer.id, state=state, hidden_at=hidden_at)
        return
    has_more = bool(buffer.entries or buffer.stored_count)
    names: tuple[str, ...] = FACTS if has_more else ()
    if buffer.has_newer_marks(or_as_new=has_more):
        names += MARKS
        buffer.is_marked = True
    if names:
        writer.change(buffer.id, **{name: buffer.fields.get(name) for name in names})
    if "title" in names:
        mark = title_mark_of(buffer.id, buffer.fields.get("title") or "")
        audit.record("rename", session=buffer.id, restored=True, title=mark.hex())


def link_to_source(session_id: UUID, name: str, target: UUID, owners: OwnerMap) -> bool:
    """Link a session to its source; False while that is not stored."""
    source = Session.objects.filter(pk=target).only("owner_id", "api_key_id").first()
    if source is None or not owners.can_link_to(source):
        return False
    forks = Session.objects.filter(pk=session_id) if name == "forked_from" else Session.objects.none()
    with daily_counts.recounting_copies(forks):
        writer.change(session_id, **{name: target})
    return True
