"""Storage of a batch of restored sessions in one transaction.

A session is `COPY_UNFINISHED` until its last entry is stored: it is not shown, and if the restore is interrupted, the
purge removes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from history.access import audit
from history.db.packing import blobs_in, dump
from history.db.transactions import writing
from history.formats.base import FormatError, Notes, gettext_noop
from history.formats.jsonl.insert_entries import EntryInserter
from history.formats.jsonl.owners import OwnerMap
from history.formats.jsonl.serialise import id_of, parse_exchange
from history.formats.jsonl.session_buffer import SessionBuffer
from history.models import COPY_UNFINISHED, Blob, EarlierTry, Exchange, Message, Session
from history.models.seals import title_mark_of
from history.record import daily_counts, writer
from history.retention import removal

FACTS = ("model", "metadata", "cost", "last_activity_at")
MARKS = ("title", "agent", "pinned_at", "archived_at", "marked_at")


def store(batch: Sequence[SessionBuffer], *, blobs: Sequence[Blob], people: OwnerMap) -> None:
    """All of it or nothing."""
    with writing():
        if blobs:
            writer.store_blobs(blobs)
        going_on = [incoming for incoming in batch if not incoming.refused]
        for incoming in going_on:
            if incoming.known is None and not incoming.is_begun:
                _begin(incoming)
        _lay(going_on)
        for incoming in going_on:
            _store_exchanges(incoming, people)
            if incoming.is_over:
                _finish(incoming, people)
    for incoming in going_on:
        incoming.is_begun = True
        incoming.stored += len(incoming.entries)


def clear(session_id: UUID) -> None:
    """What is left of a restore that broke off."""
    begun = Session.objects.filter(pk=session_id, hidden_at=COPY_UNFINISHED)
    for pk in removal.mark(begun, why="unfinished"):
        for _ in removal.finish([pk]):
            pass


def _begin(incoming: SessionBuffer) -> None:
    fields = {**incoming.fields, "hidden_at": COPY_UNFINISHED}
    Session(
        pk=incoming.id,
        owner=incoming.owner,
        api_key=incoming.key,
        version=incoming.trimmed_through,
        last_seal=fields["anchor_seal"],
        stored_at=timezone.now(),
        **fields,
    ).save(force_insert=True)


def _lay(batch: Sequence[SessionBuffer]) -> None:
    writing_to = [incoming for incoming in batch if incoming.entries]
    locked = writer.lock((incoming.id for incoming in writing_to), in_the_making=True) if writing_to else {}
    layings = {pk: EntryInserter(session) for pk, session in locked.items()}
    for incoming in writing_to:
        for laid in incoming.entries:
            layings[incoming.id].lay(laid)
    writer.flush(list(layings.values()))
    for laying in layings.values():
        laying.write_calls()
    writer.save_sessions([laying.session for laying in layings.values()])
    for incoming in writing_to:
        if incoming.is_over:
            layings[incoming.id].close()


def _store_exchanges(incoming: SessionBuffer, people: OwnerMap) -> None:
    if not incoming.exchanges:
        return
    numbers = {facts["message"] for facts in incoming.exchanges if facts.get("message")}
    messages = dict(Message.objects.of(incoming.id).filter(seq__in=numbers).values_list("seq", "pk"))
    ids = people.exchange_ids(id_of(facts, "id") for facts in incoming.exchanges)
    made = [_exchange(facts, incoming, people, messages, ids) for facts in incoming.exchanges]
    Session.objects.lock(incoming.id)  # one restore at a time
    with daily_counts.recounting(exchanges=Exchange.objects.filter(pk__in=[exchange.pk for exchange in made])):
        Exchange.objects.bulk_create(made, ignore_conflicts=True)
    ours = set(Exchange.objects.of(incoming.id).filter(pk__in=[e.pk for e in made]).values_list("pk", flat=True))
    _store_tries([exchange for exchange in made if exchange.pk in ours])
    wanted = {(e.pk, name) for e in made if e.pk in ours for name in blobs_in(dump(e.inputs))}
    stored = people.blobs({name for _, name in wanted})
    through = Exchange.blobs.through
    links = [through(exchange_id=pk, blob_id=name) for pk, name in sorted(wanted) if name in stored]
    through.objects.bulk_create(links, ignore_conflicts=True)
    if len(links) < len(wanted):
        incoming.notes("lost", gettext_noop("texts that calls to models were made from are not in the file"))


def _store_tries(exchanges: Sequence[Exchange]) -> None:
    """The ids of a client's earlier tries lead to the call that they became, unless this server has such calls."""
    tries = dict(pair for exchange in exchanges for pair in _tries_of(exchange))
    taken = set(Exchange.objects.filter(pk__in=tries).values_list("pk", flat=True))
    rows = [EarlierTry(pk=name, exchange_id=pk) for name, pk in tries.items() if name not in taken]
    EarlierTry.objects.bulk_create(rows, ignore_conflicts=True)


def _tries_of(exchange: Exchange) -> Iterator[tuple[UUID, UUID]]:
    tries = exchange.metadata.get("retried")
    for one in tries if isinstance(tries, list) else ():
        if isinstance(one, Mapping):
            with suppress(FormatError):
                yield id_of(one, "exchange"), exchange.pk


def store_loose(facts: Mapping[str, Any], people: OwnerMap) -> bool:
    """A call that belongs to no session. False: it is here already."""
    owner, fields = people.named(facts.get("owner")), parse_exchange(facts)
    [fields["id"]] = people.exchange_ids([fields["id"]]).values()
    if Exchange.objects.filter(pk=fields["id"]).exists():
        return False
    with writing():
        key = people.key(facts.get("key"), owner=owner, notes=Notes())
        exchange = Exchange(owner=owner, api_key=key, heartbeat_at=fields["ended_at"], **fields)
        with daily_counts.recounting(exchanges=Exchange.objects.filter(pk=exchange.pk)):
            exchange.save(force_insert=True)
        names = blobs_in(dump(exchange.inputs))
        if names:
            exchange.blobs.add(*Blob.objects.filter(pk__in=people.blobs(names)))
    return True


def _exchange(
    facts: Mapping[str, Any],
    incoming: SessionBuffer,
    people: OwnerMap,
    messages: Mapping[int, int],
    ids: Mapping[UUID, UUID],
) -> Exchange:
    try:
        owner = people.named(facts["owner"]) if "owner" in facts else incoming.owner
    except FormatError:
        what = gettext_noop("who made a call to a model: it is the owner's now")
        incoming.notes("lost", what, where=str(facts["owner"]))
        owner = incoming.owner
    key = people.key(facts["key"], owner=owner, notes=incoming.notes) if "key" in facts else incoming.key
    fields = parse_exchange(facts)
    fields["id"] = ids[fields["id"]]
    return Exchange(
        session_id=incoming.id,
        owner=owner,
        api_key=key,
        message_id=messages.get(facts.get("message") or 0),
        heartbeat_at=fields["ended_at"],
        **fields,
    )


def _finish(incoming: SessionBuffer, people: OwnerMap) -> None:
    """Its last entry is there: record what was removed on purpose, and make the session visible."""
    if not people.is_operator and (brought := incoming.stored + len(incoming.entries)):
        # The author of the file decides what it says: the audit keeps that these were not recorded here.
        audit.record("restore", actor=incoming.owner.pk, session=incoming.id, entries=brought, through=incoming.last)
    count, through = incoming.dropped
    if count:
        audit.record("drop", session=incoming.id, through=through, entries=count, restored=True)
    if incoming.known is None:
        if incoming.trimmed_through:
            seal = incoming.fields["anchor_seal"].hex()
            trimmed = {"through": incoming.trimmed_through, "entries": 0, "seal": seal, "kept": incoming.kept}
            audit.record("trim", session=incoming.id, restored=True, **trimmed)
        _tell_state(incoming)
        writer.change(incoming.id, hidden_at=incoming.fields.get("hidden_at"))
    else:
        _follow(incoming)


def _tell_state(incoming: SessionBuffer) -> None:
    """That it is held or in the trash is known from the audit chain alone."""
    if incoming.fields.get("hold"):
        audit.record("hold", session=incoming.id, restored=True)
    if hidden_at := incoming.fields.get("hidden_at"):
        audit.record("hide", session=incoming.id, restored=True, hidden_at=hidden_at.isoformat())


def _follow(incoming: SessionBuffer) -> None:
    """What no entry says: from the file if it is further than we were, and its marks where they are the newer ones."""
    is_further = bool(incoming.entries or incoming.stored)
    names: tuple[str, ...] = FACTS if is_further else ()
    if incoming.has_newer_marks(or_as_new=is_further):
        names += MARKS
        incoming.is_marked = True
    if names:
        writer.change(incoming.id, **{name: incoming.fields.get(name) for name in names})
    if "title" in names:
        mark = title_mark_of(incoming.id, incoming.fields.get("title") or "")
        audit.record("rename", session=incoming.id, restored=True, title=mark.hex())


def link(session_id: UUID, name: str, target: UUID, people: OwnerMap) -> bool:
    """Let a session point to the one it comes from; False while that is not there."""
    there: QuerySet[Session] = Session.objects.filter(pk=target).only("owner_id", "api_key_id")
    found = there.first()
    if found is None or not people.may_point_to(found):
        return False
    forks = Session.objects.filter(pk=session_id) if name == "forked_from" else Session.objects.none()
    with daily_counts.recounting_copies(forks):
        writer.change(session_id, **{name: target})
    return True
