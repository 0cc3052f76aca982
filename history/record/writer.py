"""Writing of drafts: message rows, their projections and the session rows, few statements for many entries."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import prefetch_related_objects
from django.utils import timezone

from history import redaction
from history.db import bulk
from history.db.parameters import LARGE, execute_bound
from history.entries import CONVERSATION, ModelOutput, ToolResults
from history.errors import NoSuchBlob, NoSuchEntry
from history.models import Blob, Message, SearchRow, Session, ToolCall
from history.models.append_only import writable
from history.record import daily_counts, paths, projections
from history.record.expiry import set_expiries
from history.record.row_builder import DraftRow, SessionDraft, load_parent_state, set_head
from history.record.search_rows import rows_of
from history.record.selectors import entries_of

# The columns of a session that appending changes.
SESSION_STATE = (
    "version", "head", "last_seal", "head_fingerprint", "head_has_open_calls", "message_count", "tool_call_count",
    "error_count", "input_tokens", "output_tokens", "title", "agent", "model", "last_activity_at", "stored_at",
    "changed_at", "expires_at",
)  # fmt: skip
# What is read to decide what the rows say.
SESSION_COLUMNS = frozenset(
    (*SESSION_STATE, "owner", "api_key", "source", "client", "created_at", "forked_from", "trimmed_through", "state")
)


def lock(ids: Iterable[UUID], *, incomplete: bool = False) -> dict[UUID, Session]:
    """Read sessions and lock them until the transaction ends, in one order against deadlocks."""
    wanted = set(ids)
    if not wanted:
        return {}
    found = bulk.read_locked(Session, list(wanted), SESSION_COLUMNS)
    # Only the code that makes an incomplete copy may write it.
    absent = {Session.State.REMOVING} if incomplete else {Session.State.REMOVING, Session.State.INCOMPLETE}
    sessions = {session.pk: session for session in found if session.state not in absent}
    if missing := wanted - sessions.keys():
        raise NoSuchEntry(f"there is no session {next(iter(missing))}")
    if any(session.api_key_id for session in sessions.values()):
        prefetch_related_objects(list(sessions.values()), "api_key")
    return sessions


def flush(drafts: Sequence[SessionDraft]) -> None:
    """Write the pending rows of all drafts together. `save_sessions` writes the session rows."""
    pending = [row for draft in drafts for row in draft.pending()]
    if pending:
        _store_blobs_of(pending)
        bulk.insert(Message, [row.message for row in pending])
        _link_blobs(pending)
        _store_calls(pending)
        bulk.insert(SearchRow, [found for row in pending for found in rows_of(row.message, row.entry)])
        for row in pending:
            daily_counts.count_message(row.message)
    for draft in drafts:
        draft.flushed = len(draft.rows)


def insert_sessions(sessions: Sequence[Session]) -> None:
    """Insert new sessions whose titles come from their entries."""
    if sessions:
        _stamp(sessions)
        for session in sessions:
            session.seal_beginning(given_title="")
        bulk.insert(Session, sessions)


def save_sessions(sessions: Sequence[Session]) -> None:
    if sessions:
        _stamp(sessions)
        bulk.update(Session, sessions, SESSION_STATE)


def _stamp(sessions: Sequence[Session]) -> None:
    now = timezone.now()
    for session in sessions:
        session.stored_at = session.changed_at = now
    set_expiries(sessions)


def change(session_id: UUID, **columns: Any) -> None:
    Session.objects.filter(pk=session_id).update(**columns, changed_at=timezone.now())


def kept_fields(fields: Mapping[str, Any], *, recording: str) -> dict[str, Any]:
    """Columns of a session, redacted for a recording mode: texts and metadata without credentials."""
    redactors = redaction.redactors_for(recording if redaction.stores_bodies(recording) else "redacted")
    kept = dict(fields)
    for name, value in () if redactors.do_nothing else fields.items():
        if isinstance(value, dict):
            kept[name] = redaction.redacted_json(value, redactors)
        elif isinstance(value, str) and name == "title":
            kept[name] = redaction.redacted_text(value, redactors)[0]
        elif isinstance(value, str):
            kept[name] = redaction.redacted_name(value, redactors)
    return kept


def store_blobs(blobs: Sequence[Blob]) -> None:
    """Store blobs, unless they are stored already. In one order, against deadlocks."""
    missing = sorted(blobs, key=lambda blob: blob.pk)
    for _ in range(3):
        _insert_blobs(missing)
        missing = _purged(missing)
        if not missing:
            return


def _insert_blobs(blobs: Sequence[Blob]) -> None:
    if connection.vendor == "postgresql" and any(blob.size > LARGE for blob in blobs):
        names = [field.attname for field in Blob._meta.concrete_fields]
        sql = (
            f"INSERT INTO {Blob._meta.db_table} ({', '.join(names)}) "  # noqa: S608  names of ours
            f"VALUES ({', '.join(['%s'] * len(names))}) ON CONFLICT DO NOTHING"
        )
        execute_bound(sql, [[getattr(blob, name) for name in names] for blob in blobs])
    else:
        bulk.insert(Blob, blobs, ignore_conflicts=True)


def new_blob(name: str, content: bytes, *, media_type: str) -> Blob:
    return Blob(sha256=name, data=content, size=len(content), media_type=bulk.fit_text(Blob, "media_type", media_type))


def _purged(blobs: Sequence[Blob]) -> list[Blob]:
    """Blobs that a purge removed meanwhile, because they were unused. The others are locked until we commit."""
    if connection.vendor != "postgresql":
        return []  # SQLite has one writer at a time
    with connection.cursor() as cursor:
        names = [blob.pk for blob in blobs]
        cursor.execute("SELECT sha256 FROM history_blob WHERE sha256 = ANY(%s) ORDER BY 1 FOR KEY SHARE", [names])
        held = {name for (name,) in cursor.fetchall()}
    return [blob for blob in blobs if blob.pk not in held]


def move_head(session: Session, *, to: int) -> None:
    """Make the path lead to entry `to`. All rows of this session must be flushed."""
    if 0 < to <= session.trimmed_through or not (to == 0 or is_place(session, to)):
        raise NoSuchEntry(f"session {session.pk} has no entry {to} to continue after")
    beside, joins = paths.climb(session.pk, to) if to else ([], 0)
    entries = Message.objects.of(session)
    left = entries.filter(on_path=True, seq__gt=joins)
    session.message_count -= left.only_messages().count()
    writable(left).update(on_path=False)
    if joins:  # entries that still apply below the anchor of a trim are on every path from it
        writable(entries.filter(seq__lte=min(joins, session.trimmed_through))).update(on_path=True)
    for start in range(0, len(beside), 500):
        joined = entries.filter(seq__in=beside[start : start + 500])
        session.message_count += joined.only_messages().count()
        writable(joined).update(on_path=True)
    # The nearest entry of the conversation at or before the place where the path changes: its calls may be open again.
    above = Message.objects.on_path(session).filter(seq__lte=joins, kind__in=CONVERSATION).order_by("-seq")
    _project_outcomes(session, since=above.values_list("seq", flat=True).first() or 0)
    session.head, session.head_has_open_calls = to, True  # so that load_parent_state reads it
    set_head(session, parent_state=load_parent_state(session, to), seq=to)


def _store_blobs_of(pending: Sequence[DraftRow]) -> None:
    fresh = {name: (content, "text/plain") for row in pending for name, content in row.packed.blobs.items()}
    fresh |= {name: file for row in pending for name, file in row.files.items()}
    if fresh:
        store_blobs([new_blob(name, content, media_type=kind) for name, (content, kind) in fresh.items()])
    attached = {name for row in pending for name in row.packed.attachments}
    if missing := attached - set(Blob.objects.filter(pk__in=attached).values_list("pk", flat=True)) if attached else ():
        raise NoSuchBlob(f"the attachment {next(iter(missing))} was not stored; call store_blob first")


def _link_blobs(pending: Sequence[DraftRow]) -> None:
    links = [
        Message.blobs.through(message_id=row.message.pk, blob_id=name)
        for row in pending
        for name in {*row.packed.blobs, *row.packed.attachments}
    ]
    bulk.insert(Message.blobs.through, links)


def _store_calls(pending: Sequence[DraftRow]) -> None:
    made: dict[tuple[UUID, int], list[ToolCall]] = {}
    for row in pending:
        if isinstance(row.entry, ModelOutput) and row.entry.tool_requests:
            made[row.message.session_id, row.message.seq] = projections.build_calls(row.message, row.entry)
        elif isinstance(row.entry, ToolResults) and row.parent_state.output:
            calls = made.get((row.message.session_id, row.parent_state.output))
            if calls is None:
                stored = ToolCall.objects.filter(session=row.message.session, message__seq=row.parent_state.output)
                stored = stored.select_related("message").defer("message__body", "message__content")
                calls = list(stored.order_by("index"))
            # A call on the path waits for results on the path.
            waiting = [call for call in calls if row.message.on_path or not call.message.on_path]
            _answer(row.message.session, waiting, row.entry, seq=row.message.seq)
    insert_calls([call for calls in made.values() for call in calls])


def insert_calls(calls: Sequence[ToolCall]) -> None:
    bulk.insert(ToolCall, calls)
    for call in calls:
        daily_counts.count_call(call.message.session, call)


def _answer(session: Session, calls: Sequence[ToolCall], entry: ToolResults, *, seq: int) -> None:
    """Give each unanswered call the result with its id. The first outcome stays: no other branch overwrites it."""
    unanswered = [call for call in calls if call.answered_by is None]
    paired = projections.pair_results([call.call_id for call in unanswered], [one.call_id for one in entry.results])
    for call, index in zip(unanswered, paired, strict=True):
        if index is None:
            continue
        before = call.status, call.duration
        outcome = projections.set_outcome(call, entry.results[index], seq=seq, index=index)
        if call.pk and writable(ToolCall.objects.filter(pk=call.pk, answered_by=None)).update(**outcome):
            daily_counts.count_call(session, call, before=before)


def _project_outcomes(session: Session, *, since: int) -> None:
    """After the path has changed, give its calls the results on it, or reopen them."""
    on_path = Message.objects.on_path(session).filter(seq__gte=since, kind__in=CONVERSATION)
    steps = list(on_path.order_by("seq").values_list("seq", "kind"))
    answers = {seq: later for (seq, _), (later, kind) in pairwise(steps) if kind == ToolResults.kind}
    # Calls whose texts were dropped by policy keep their outcome: no other can be read.
    calls = ToolCall.objects.filter(session=session).filter(
        message__on_path=True, message__seq__gte=since, message__dropped_at=None
    )
    stale: dict[int | None, list[ToolCall]] = {}
    for call in calls.select_related("message").defer("message__body", "message__content"):
        if call.answered_by != answers.get(call.message.seq):
            stale.setdefault(answers.get(call.message.seq), []).append(call)
    for group in stale.values():
        _reopen(session, group)
    for seq, group in stale.items():
        entry = entries_of([Message.objects.at(session, seq).get()])[0] if seq is not None else None
        if seq is not None and isinstance(entry, ToolResults):
            _answer(session, group, entry, seq=seq)


def _reopen(session: Session, calls: Sequence[ToolCall]) -> None:
    before = [(call.status, call.duration) for call in calls]
    for call in calls:
        interrupted = call.message.status != Message.Status.COMPLETE
        status = ToolCall.Status.INTERRUPTED if interrupted else ToolCall.Status.PENDING
        for name, value in (projections.NO_OUTCOME | {"status": status}).items():
            setattr(call, name, value)
    writable(ToolCall.objects.all()).bulk_update(calls, list(projections.NO_OUTCOME), batch_size=100)
    for call, outcome in zip(calls, before, strict=True):
        daily_counts.count_call(session, call, before=outcome)


def is_place(session: Session, seq: int) -> bool:
    return Message.objects.at(session, seq).possible_parents().exists()
