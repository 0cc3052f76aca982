"""What goes for good, when, and by whose hand: hiding, holding, erasing, expiry, caps, leftovers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.db import connection
from django.utils import timezone

from history import retention, search, verification
from history.access import permissions
from history.access.permissions import Purpose
from history.entries import Media, ModelInput
from history.errors import NoSuchEntry
from history.models import ApiKey, AuditEvent, Blob, Exchange, Message, SearchRow, Session, ToolCall
from history.record import exchanges, recorder
from history.record.expiry import scopes
from history.retention import purging, removal
from history.retention.removal import BATCH
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = [pytest.mark.django_db, pytest.mark.runs_first]

LONG = "long" * 20_000  # too long for a row: it goes to a blob


def key_of(owner: Any, name: str = "laptop", **fields: Any) -> ApiKey:
    fields = {"recording": "full", "scopes": ["read"]} | fields
    return ApiKey.objects.create(name=name, prefix=name, secret_hash=name.encode(), owner=owner, **fields)


def days(number: float) -> Any:
    return timezone.now() + timedelta(days=number)


def session_ids() -> list[UUID]:
    return list(Session.objects.order_by("created_at").values_list("pk", flat=True))


def audit_events(action: str) -> list[AuditEvent]:
    return list(AuditEvent.objects.filter(action=action).order_by("seq"))


def dump() -> dict[str, list[Any]]:
    """Every row of every table of the history."""
    models = apps.get_app_config("history").get_models(include_auto_created=True)
    return {model.__name__: sorted(map(repr, model._default_manager.values_list())) for model in models}


def finds(viewer: Any, words: str) -> int:
    return len(search.search(viewer, words).hits)


# Hiding: the owner's delete.


def test_a_hidden_session_is_gone_for_its_owner_its_key_and_search(ada: Any, bob: Any) -> None:
    key = key_of(ada)
    session = create_chat(ada, "where is the harbour", api_key=key, source="relay")
    assert (finds(ada, "harbour"), finds(key, "harbour"), finds(bob, "harbour")) == (1, 1, 0)
    assert retention.hide(session, actor=ada)
    for viewer in (ada, key, bob):
        assert permissions.find(viewer, session.pk, Purpose.LIST) is None
        assert finds(viewer, "harbour") == 0


def test_a_delete_can_be_undone_and_both_are_told_to_the_audit_chain(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    retention.hide(session, actor=ada, reason="by mistake")
    assert retention.unhide(session, actor=ada)
    assert permissions.find(ada, session.pk, Purpose.LIST) is not None
    assert [
        (event.action, event.actor, event.session, event.reason) for event in AuditEvent.objects.order_by("seq")
    ] == [("hide", ada.pk, session.pk, "by mistake"), ("unhide", ada.pk, session.pk, "")]


def test_hiding_twice_is_one_event_and_keeps_the_first_time(ada: Any) -> None:
    session = create_chat(ada, "one")
    assert retention.hide(session, actor=ada)
    first = session.hidden_at
    assert not retention.hide(session, actor=ada)
    assert Session.objects.get().hidden_at == first
    assert len(audit_events("hide")) == 1


def test_a_key_that_deletes_is_named_in_the_audit_chain(ada: Any) -> None:
    key = key_of(ada)
    retention.hide(create_chat(ada, "one", api_key=key), actor=key)
    assert [(event.actor, event.key) for event in audit_events("hide")] == [(None, key.pk)]


def test_the_trash_is_emptied_after_its_hours(ada: Any, settings: Any) -> None:
    settings.PARLEY_TRASH_HOURS = 24
    hidden, other = create_chat(ada, "one"), create_chat(ada, "two")
    retention.hide(hidden, actor=ada)
    assert retention.purge(dry_run=False, now=days(0.9)).sessions == 0
    assert retention.purge(dry_run=False, now=days(1.1)).trashed == 1
    assert session_ids() == [other.pk]
    assert list(verification.verify()) == []


# Holding.


def opened_from(session: Session, text: str) -> Session:
    """As an agent does it that calls another, or a program with its subagents."""
    below = create_chat(session.owner, text)
    Session.objects.filter(pk=below.pk).update(parent=session)
    return below


def test_what_was_opened_from_a_session_goes_into_the_trash_and_comes_back_with_it(ada: Any) -> None:
    session = create_chat(ada, "asks an agent")
    below = opened_from(session, "is asked")
    further = opened_from(below, "is asked by it")
    alone = opened_from(session, "went before")
    fork = create_chat(ada, "a copy is a session of its own")
    Session.objects.filter(pk=fork.pk).update(forked_from=session)
    retention.hide(alone, actor=ada)
    retention.hide(session, actor=ada, reason="done")
    assert list(permissions.sessions_for(ada, Purpose.READ)) == [fork]
    assert {event.session for event in audit_events("hide")} == {session.pk, below.pk, further.pk, alone.pk}
    retention.unhide(session, actor=ada)
    assert set(permissions.sessions_for(ada, Purpose.READ)) == {session, below, further, fork}


def test_what_was_opened_from_a_session_is_erased_with_it_unless_it_is_held(ada: Any, staff: Any) -> None:
    session = create_chat(ada, "asks an agent")
    below, held = opened_from(session, "is asked"), opened_from(session, "is evidence")
    retention.hold(held, actor=staff, reason="a trial")
    assert retention.erase(session, actor=ada, reason="asked to").messages == 2
    assert list(Session.objects.all()) == [held]
    assert {event.session for event in audit_events("remove")} == {session.pk, below.pk}


def test_a_held_session_neither_expires_nor_leaves_the_trash_nor_is_erased(ada: Any, staff: Any) -> None:
    session = create_chat(ada, "one", "two", source="relay")
    retention.hold(session, actor=staff, reason="case 7")
    retention.hide(session, actor=ada)
    assert retention.purge(now=days(400)).sessions == 0
    retention.purge(dry_run=False, now=days(400))
    with pytest.raises(retention.UnderHold):
        retention.erase(session, actor=ada, reason="please")
    assert session_ids() == [session.pk]
    assert Message.objects.count() == 2
    assert [(event.actor, event.reason) for event in audit_events("hold")] == [(staff.pk, "case 7")]


def test_a_held_and_hidden_session_is_seen_by_staff_with_the_hold_right_only(ada: Any, bob: Any, staff: Any) -> None:
    session = create_chat(ada, "one")
    retention.hold(session, actor=staff, reason="case 7")
    retention.hide(session, actor=ada)
    assert [permissions.find(viewer, session.pk, Purpose.LIST) for viewer in (ada, bob, staff)] == [None, None, None]
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "hold_session"]))
    keeper = type(staff).objects.get(pk=staff.pk)
    assert permissions.find(keeper, session.pk, Purpose.LIST) == session


def test_after_its_release_the_rules_apply_again(ada: Any, staff: Any) -> None:
    session = create_chat(ada, "one", source="relay")
    retention.hold(session, actor=staff, reason="case 7")
    assert retention.release(session, actor=staff, reason="closed")
    assert not retention.release(session, actor=staff, reason="closed")
    assert retention.purge(dry_run=False, now=days(31)).expired == 1
    assert [event.reason for event in audit_events("release")] == ["closed"]


# Erasing.


def test_erasing_skips_the_trash_and_leaves_an_event_with_ids_and_counts(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three")
    removed = retention.erase(session, actor=ada, reason="asked to")
    assert (removed.messages, session_ids(), SearchRow.objects.count()) == (3, [], 0)
    (event,) = audit_events("remove")
    assert (event.session, event.actor, event.reason) == (session.pk, ada.pk, "asked to")
    assert '"why":"erased"' in event.details
    assert '"entries":3' in event.details
    assert "one" not in event.details


def test_removal_takes_everything_with_it_and_nothing_of_anybody_else(ada: Any, bob: Any) -> None:
    other = create_chat(bob, "hers is hers", "yes")
    before = dump()
    session = create_chat(ada, "question")
    recorder.append_many(session, [model_output("", tool_request("a")), tool_results(tool_result("a", LONG))], after=1)
    exchange = exchanges.open_exchange(session, owner=ada, after=3, inputs={"live": LONG})
    exchanges.finish(exchange, model_output("done"), end_reason="done")
    assert (ToolCall.objects.count(), Exchange.objects.count(), Blob.objects.count()) == (1, 1, 1)
    retention.erase(session, actor=ada, reason="")
    retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=2))
    after = dump()
    assert {name for name in after if after[name] != before[name]} == {"AuditEvent"}
    assert permissions.find(bob, other.pk, Purpose.LIST) == other
    assert list(verification.verify()) == []


def test_forks_of_a_removed_session_stay(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    fork = recorder.fork(session, at=2, owner=ada)
    retention.erase(session, actor=ada, reason="")
    assert session_ids() == [fork.pk]
    assert Session.objects.filter(forked_from=None).count() == 1
    assert list(verification.verify()) == []


def test_a_session_that_expires_leaves_what_was_opened_from_it_to_its_own_time(ada: Any) -> None:
    session = create_chat(ada, "one", source="relay")
    child = create_chat(ada, "subagent", parent=session)
    assert retention.purge(dry_run=False, now=days(30.1)).sessions == 1
    assert session_ids() == [child.pk]
    assert Session.objects.filter(parent=None).count() == 1


# Expiry.


def test_relayed_sessions_go_thirty_days_after_their_last_activity_and_chats_stay(ada: Any) -> None:
    relayed, chat = create_chat(ada, "one", source="relay"), create_chat(ada, "two")
    assert retention.purge(dry_run=False, now=days(29.9)).sessions == 0
    report = retention.purge(dry_run=False, now=days(30.1))
    assert (report.expired, report.messages, report.search_rows) == (1, 1, 1)
    assert session_ids() == [chat.pk]
    assert [event.session for event in audit_events("remove")] == [relayed.pk]


def test_an_expired_session_is_not_served_even_before_a_purge_has_come_by(ada: Any, bob: Any) -> None:
    key = key_of(ada)
    session = create_chat(ada, "lighthouse", source="relay", api_key=key)
    Session.objects.update(expires_at=days(-1))
    for viewer in (ada, key, bob):
        assert permissions.find(viewer, session.pk, Purpose.LIST) is None
        assert finds(viewer, "lighthouse") == 0


def test_expiry_follows_the_rule_of_today(ada: Any, settings: Any) -> None:
    session = create_chat(ada, "one", source="relay")
    settings.CHAT_HISTORY_TTL_DAYS = 90
    assert retention.purge(dry_run=False, now=days(31)).expired == 0
    session.refresh_from_db()
    assert abs(session.expires_at - days(90)) < timedelta(minutes=5)
    settings.CHAT_HISTORY_TTL_DAYS = 0
    retention.purge(dry_run=False, now=days(31))
    session.refresh_from_db()
    assert session.expires_at is None
    settings.CHAT_HISTORY_TTL_DAYS = 7
    assert retention.purge(now=days(8)).expired == 1
    assert retention.purge(dry_run=False, now=days(8)).expired == 1


def agreed_expiry(session: Session) -> datetime:
    """What is stored, after a look whether the purge reckons the same to the instant."""
    assert not any(purging.stale_expiry(scope)[0].exists() for scope in scopes())
    until = Session.objects.get(pk=session.pk).expires_at
    assert until is not None
    assert retention.purge(now=until - timedelta(microseconds=1)).expired == 0
    assert retention.purge(now=until).expired == 1
    return until


@pytest.mark.parametrize("key_days", [None, 11])
@pytest.mark.parametrize(("source", "setting"), [
    ("relay", "CHAT_HISTORY_TTL_DAYS"), ("chat", "PARLEY_CHAT_TTL_DAYS"), ("import", "PARLEY_IMPORT_TTL_DAYS"),
])  # fmt: skip
def test_writing_and_purging_agree_on_the_end_of_a_session_also_after_a_change_of_rule(
    ada: Any, settings: Any, source: str, setting: str, key_days: int | None
) -> None:
    setattr(settings, setting, 30)
    key = key_of(ada, keep_days=key_days) if key_days else None
    session = recorder.start_session(owner=ada, source=source, api_key=key, created_at=days(-5))
    agreed_expiry(session)
    then = days(-4)
    recorder.append(session, model_input("four days ago", at=then), after=0)
    counted_from = session.stored_at if source == "import" else then
    assert agreed_expiry(session) == counted_from + timedelta(days=key_days or 30)
    setattr(settings, setting, 20)
    if key:
        ApiKey.objects.update(keep_days=9)
    retention.purge(dry_run=False)
    aligned = agreed_expiry(session)
    assert aligned == counted_from + timedelta(days=9 if key else 20)
    recorder.append(Session.objects.get(), model_output("at the same time", at=then), after=1)
    written = agreed_expiry(session)
    assert written > aligned if source == "import" else written == aligned


def test_updating_expiry_reads_every_session_once_during_other_writes(ada: Any, settings: Any) -> None:
    settings.PARLEY_CHAT_TTL_DAYS = 7
    Session.objects.bulk_create(Session(owner=ada) for _ in range(BATCH + 1))
    looks: list[int] = []

    def write_again() -> None:
        looks.append(Session.objects.exclude(expires_at=None).update(expires_at=None))
        assert len(looks) < 5

    [chats] = [scope for scope in scopes() if scope.source == "chat"]
    purging.align_expiry(chats, after_batch=write_again)
    assert looks == [BATCH, 1]


def test_a_shorter_rule_takes_a_session_from_view_at_the_next_purge(ada: Any, settings: Any) -> None:
    session = create_chat(ada, "one", source="relay", created_at=days(-10))
    Session.objects.update(last_activity_at=days(-10), expires_at=days(20))
    settings.CHAT_HISTORY_TTL_DAYS = 20
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert abs(session.expires_at - days(10)) < timedelta(minutes=5)


@pytest.mark.parametrize("number", [999_999, 4_000_000, 2**31 - 1])
def test_a_rule_longer_than_the_calendar_neither_stops_writing_nor_purging(
    ada: Any, settings: Any, number: int
) -> None:
    settings.CHAT_HISTORY_TTL_DAYS = settings.CHAT_HISTORY_BODY_DAYS = number
    key = key_of(ada, keep_days=number, keep_body_days=number)
    relayed = [create_chat(ada, "a word", source="relay", api_key=api_key) for api_key in (None, key)]
    assert retention.purge(dry_run=False, now=days(365)).is_complete
    assert {session.pk for session in relayed} == set(session_ids())


def test_a_session_that_claims_to_begin_in_the_future_is_purged_like_any_other(ada: Any) -> None:
    begun = datetime(9999, 12, 31, tzinfo=UTC)
    recorder.start_session(owner=ada, source="relay", created_at=begun)
    assert retention.purge(dry_run=False).is_complete
    assert retention.purge(dry_run=False, now=days(31)).expired == 1


def test_what_a_key_says_counts_instead_of_the_rule(ada: Any) -> None:
    brief, endless, plain = key_of(ada, "brief", keep_days=1), key_of(ada, "endless", keep_days=0), key_of(ada, "plain")
    sessions = {key.name: create_chat(ada, "x", source="relay", api_key=key) for key in (brief, endless, plain)}
    assert retention.purge(dry_run=False, now=days(2)).expired == 1
    assert sessions["brief"].pk not in session_ids()
    assert retention.purge(dry_run=False, now=days(31)).expired == 1
    assert session_ids() == [sessions["endless"].pk]


def test_an_import_of_old_talk_is_kept_from_the_day_it_was_imported(ada: Any, settings: Any) -> None:
    settings.PARLEY_IMPORT_TTL_DAYS = 10
    session = recorder.start_session(owner=ada, source="import", created_at=days(-400))
    recorder.append(session, model_input("long ago", at=days(-400)), after=0)
    assert retention.purge(dry_run=False, now=days(9)).expired == 0
    assert retention.purge(dry_run=False, now=days(11)).expired == 1


def test_an_import_from_before_there_was_a_rule_is_kept_from_the_day_of_the_rule(ada: Any, settings: Any) -> None:
    session = recorder.start_session(owner=ada, source="import", created_at=days(-400))
    settings.PARLEY_IMPORT_TTL_DAYS = 10
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert abs(session.expires_at - days(10)) < timedelta(minutes=5)
    settings.PARLEY_IMPORT_TTL_DAYS = 0
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.expires_at is None


def test_calls_without_a_session_are_kept_as_long_as_relayed_ones(ada: Any) -> None:
    exchange = exchanges.open_exchange(None, owner=ada, inputs={"live": LONG})
    exchanges.finish(exchange, None, end_reason="done")
    running = exchanges.open_exchange(None, owner=ada)
    assert retention.purge(now=days(31)).exchanges == 1
    assert retention.purge(dry_run=False, now=days(31)).exchanges == 1
    assert list(Exchange.objects.values_list("pk", flat=True)) == [running.pk]
    assert Blob.objects.count() == 0


# Caps on sessions.


def test_over_its_cap_a_keys_sessions_with_the_oldest_activity_go_first(ada: Any) -> None:
    key, other = key_of(ada, max_sessions=2), key_of(ada, "other")
    sessions = [create_chat(ada, str(number), source="relay", api_key=key) for number in range(4)]
    others = create_chat(ada, "other", source="relay", api_key=other)
    recorder.append(sessions[0], model_input("still here"), after=1)
    assert retention.purge().over_cap == 2
    assert retention.purge(dry_run=False).over_cap == 2
    assert set(session_ids()) == {sessions[0].pk, sessions[3].pk, others.pk}


def test_the_general_cap_counts_each_key_by_itself_and_relayed_sessions_only(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_MAX_SESSIONS = 1
    first, second, free = key_of(ada, "first"), key_of(ada, "second"), key_of(ada, "free", max_sessions=0)
    for key in (first, second, free):
        create_chat(ada, "one", source="relay", api_key=key)
        create_chat(ada, "two", source="relay", api_key=key)
    create_chat(ada, "imported", source="import", api_key=first)
    assert retention.purge(dry_run=False).over_cap == 2
    assert Session.objects.filter(api_key=free).count() == 2
    assert Session.objects.filter(source="import").count() == 1


def test_held_sessions_do_not_count_against_the_limit(ada: Any, staff: Any) -> None:
    key = key_of(ada, max_sessions=1)
    old, newer = (create_chat(ada, text, source="relay", api_key=key) for text in ("old", "newer"))
    retention.hold(old, actor=staff, reason="case 7")
    assert retention.purge(dry_run=False).over_cap == 0
    assert set(session_ids()) == {old.pk, newer.pk}


# Blobs.


def test_a_blob_goes_an_hour_after_the_last_entry_that_named_it(ada: Any) -> None:
    session, other = (recorder.start_session(owner=ada) for _ in range(2))
    name = recorder.store_blob(b"a picture", media_type="image/png")
    picture = ModelInput(parts=(Media(media_type="image/png", sha256=name),))
    recorder.append(session, picture, after=0)
    recorder.append(other, picture, after=0)
    later = timezone.now() + timedelta(hours=2)
    retention.erase(session, actor=ada, reason="")
    assert retention.purge(dry_run=False, now=later).blobs == 0
    retention.erase(other, actor=ada, reason="")
    assert retention.purge(dry_run=False).blobs == 0
    assert (retention.purge(now=later).blobs, Blob.objects.count()) == (1, 1)
    assert (retention.purge(dry_run=False, now=later).blobs, Blob.objects.count()) == (1, 0)


# How it goes.


def a_bit_of_everything(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_MAX_MESSAGES, settings.CHAT_HISTORY_BODY_DAYS = 4, 5
    key = key_of(ada, keep_days=0, max_sessions=2)
    for number in range(3):
        create_chat(ada, *(f"{number} {place} {LONG}" for place in range(8)), source="relay", api_key=key)
    create_chat(ada, "expires", source="relay")
    retention.hide(create_chat(ada, "hidden"), actor=ada)
    Session.objects.update(created_at=days(-10))
    Blob.objects.update(created_at=days(-1))


def test_a_dry_run_changes_nothing_and_says_what_a_real_one_does(ada: Any, settings: Any) -> None:
    a_bit_of_everything(ada, settings)
    before = dump()
    dry = retention.purge(now=days(31))
    assert dump() == before
    assert (dry.expired, dry.trashed, dry.over_cap, dry.messages, dry.trimmed) == (1, 1, 1, 10, 8)
    real = retention.purge(dry_run=False, now=days(31))
    names = ("expired", "trashed", "over_cap", "messages", "trimmed")
    assert [getattr(real, name) for name in names] == [getattr(dry, name) for name in names]
    assert real.dropped == Message.objects.count() == 8
    assert real.blobs == 24
    assert list(verification.verify()) == []


def test_when_the_budget_is_spent_the_next_run_goes_on(ada: Any, settings: Any) -> None:
    a_bit_of_everything(ada, settings)
    runs = 0
    while not (report := retention.purge(dry_run=False, budget=timedelta(0), now=days(31))).is_complete:
        runs += 1
        assert runs < 100
        assert not any(finding.is_damage for finding in verification.verify())
    assert runs > 5
    assert report.is_complete
    assert retention.purge(now=days(31)) == retention.PurgeReport(dry_run=True)
    assert (Session.objects.count(), Message.objects.count(), Message.objects.exclude(body=None).count()) == (2, 8, 0)
    assert Blob.objects.count() == 0


class PowerCut(Exception):
    pass


@pytest.mark.parametrize("after", range(1, 9))
def test_a_purge_that_dies_anywhere_serves_nothing_by_halves_and_is_finished_by_the_next(
    ada: Any, settings: Any, after: int
) -> None:
    a_bit_of_everything(ada, settings)
    calls = 0

    def cut(what: str, count: int) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            raise PowerCut

    with pytest.raises(PowerCut):
        retention.purge(dry_run=False, now=days(31), progress=cut)
    assert list(verification.verify()) == []
    for session in permissions.sessions_for(ada, Purpose.LIST):
        assert Message.objects.filter(session=session).count() == session.version - session.trimmed_through
    assert retention.purge(dry_run=False, now=days(31)).is_complete
    assert (Session.objects.count(), Message.objects.count(), Blob.objects.count()) == (2, 8, 0)
    assert list(verification.verify()) == []


def test_a_half_removed_session_cannot_be_brought_back_or_held(ada: Any, staff: Any) -> None:
    session = create_chat(ada, *["word"] * (BATCH + 10), source="relay")

    def cut(what: str, count: int) -> None:
        if what == "messages":
            raise PowerCut

    with pytest.raises(PowerCut):
        retention.purge(dry_run=False, now=days(31), progress=cut)
    assert 0 < Message.objects.count() <= 10
    assert permissions.find(ada, session.pk, Purpose.LIST) is None
    with pytest.raises(retention.BeingRemoved):
        retention.unhide(session, actor=ada)
    with pytest.raises(retention.BeingRemoved):
        retention.hold(session, actor=staff, reason="too late")
    assert retention.purge(now=days(31)).resumed == 1
    assert retention.purge(dry_run=False, now=days(31)).resumed == 1
    assert session_ids() == []
    assert len(audit_events("remove")) == 1


def just_before(beginning: str, do: Callable[[], object]) -> AbstractContextManager[None]:
    """Another writer acts right before our first statement that begins so."""
    waiting = [do]

    def between(execute: Any, sql: str, *rest: Any) -> Any:
        if waiting and sql.startswith(beginning):
            waiting.pop()()
        return execute(sql, *rest)

    return connection.execute_wrapper(between)


def test_a_hold_that_comes_an_instant_after_the_removal_began_is_refused(ada: Any, staff: Any) -> None:
    session = create_chat(ada, "a word")
    begin = partial(removal.mark, Session.objects.all(), why="erased")
    with just_before('UPDATE "history_session"', begin), pytest.raises(retention.BeingRemoved):
        retention.hold(session, actor=staff, reason="too late")
    assert not Session.objects.get().hold


def test_a_hold_released_during_an_erasure_leaves_a_record(ada: Any, staff: Any) -> None:
    session = create_chat(ada, "a word")
    retention.hold(session, actor=staff, reason="a lawsuit")
    release = partial(retention.release, session, actor=staff, reason="settled")
    with just_before("SELECT %s", release), pytest.raises(retention.UnderHold):
        retention.erase(session, actor=ada, reason="asked for")
    assert Message.objects.count() == 1
    assert list(verification.verify()) == []


def test_a_writer_who_knew_nothing_of_a_removal_is_refused_and_does_not_stop_it(ada: Any) -> None:
    session = create_chat(ada, *["word"] * (BATCH + 10), source="relay")
    refused: list[str] = []

    def write(what: str, count: int) -> None:
        if what == "messages" and not refused:
            with pytest.raises(NoSuchEntry) as refusal:
                recorder.append(Session.objects.get(), model_input("late"), after=session.version)
            refused.append(str(refusal.value))

    report = retention.purge(dry_run=False, now=days(31), progress=write)
    assert refused, "what is acknowledged and then deleted would be lost without a word"
    assert report.messages == BATCH + 10
    assert (session_ids(), Message.objects.count(), SearchRow.objects.count()) == ([], 0, 0)


def test_the_hourly_purge_is_for_good(ada: Any) -> None:
    create_chat(ada, "one", source="relay")
    Session.objects.update(last_activity_at=days(-31))
    report = retention.purge_due()
    assert (report.dry_run, report.is_complete, report.expired) == (False, True, 1)


def test_a_store_without_rules_loses_nothing(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_TTL_DAYS = 0
    key = key_of(ada)
    for source in Session.Source.values:
        create_chat(ada, *["word"] * 30, source=source, api_key=key)
    assert retention.purge(dry_run=False, now=days(5_000)).sessions == 0
    assert Message.objects.count() == 120
