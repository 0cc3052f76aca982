"""Sessions that stay but lose their oldest turns, or the texts of them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings as how, strategies as st

from history import retention, search, verification
from history.entries import (
    DebugLog,
    Entry,
    NotebookSet,
    PlanSet,
    Summary,
    SystemInstructionSet,
    ToolDefinition,
    ToolsOffered,
    Usage,
)
from history.models import ApiKey, AuditEvent, Blob, Exchange, Message, SearchRow, Session, ToolCall
from history.record import exchanges, recorder, selectors
from history.retention import trimming, turns
from tests.factories import (
    create_chat,
    example_count,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)

pytestmark = pytest.mark.django_db

COUNTERS = ("message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens")


def relayed(owner: Any, *entries: Entry) -> Session:
    session = recorder.start_session(owner=owner, source="relay")
    if entries:
        recorder.append_many(session, entries, after=0)
    return session


def trimmed(session: Session, settings: Any, to: int) -> retention.PurgeReport:
    settings.CHAT_HISTORY_MAX_MESSAGES = to
    report = retention.purge(dry_run=False)
    session.refresh_from_db()
    return report


def numbers(session: Session) -> list[int]:
    return list(Message.objects.filter(session=session).order_by("seq").values_list("seq", flat=True))


def contents(session: Session, **where: Any) -> list[str]:
    return [message.content for message in selectors.messages_of(session, **where).messages]


def counters(session: Session) -> list[int]:
    return [getattr(session, name) for name in COUNTERS]


def turn(number: int, **usage: Any) -> list[Entry]:
    used = Usage(**usage) if usage else None
    return [
        model_input(f"question {number}"),
        model_output("", tool_request(f"c{number}"), usage=used),
        tool_results(tool_result(f"c{number}", status="failed")),
        model_output(f"answer {number}", usage=used),
    ]


# Trimming.


def test_over_the_cap_the_oldest_whole_turns_go(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2), *turn(3))
    report = trimmed(session, settings, to=9)
    assert (report.trimmed, numbers(session)) == (4, [5, 6, 7, 8, 9, 10, 11, 12])
    assert (session.trimmed_through, session.version, session.head) == (4, 12, 12)
    assert contents(session)[0] == "question 2"
    assert list(verification.verify()) == []


def test_under_the_cap_nothing_goes(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2))
    assert trimmed(session, settings, to=8).trimmed == 0
    assert session.trimmed_through == 0
    assert not AuditEvent.objects.exists()


def test_the_last_turn_stays_however_small_the_cap(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2))
    trimmed(session, settings, to=1)
    assert numbers(session) == [5, 6, 7, 8]
    assert trimmed(session, settings, to=1).trimmed == 0


def test_counters_are_sums_over_what_is_left(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1, input_tokens=10, output_tokens=3), *turn(2, input_tokens=20, output_tokens=4))
    assert counters(session) == [6, 2, 2, 60, 14]
    trimmed(session, settings, to=4)
    assert counters(session) == [3, 1, 1, 40, 8]
    assert (ToolCall.objects.count(), SearchRow.objects.count()) == (1, 4)


def test_search_rows_and_blobs_go_with_the_trimmed_turns(ada: Any, settings: Any) -> None:
    session = relayed(
        ada, model_input("lighthouse " + "x" * 70_000), model_output("yes"), model_input("harbour"), model_output("no")
    )
    assert len(search.search(ada, "lighthouse").hits) == 1
    Blob.objects.update(created_at=timezone.now() - timedelta(hours=2))
    report = trimmed(session, settings, to=2)
    assert (report.search_rows, report.blobs, Blob.objects.count()) == (2, 1, 0)
    assert len(search.search(ada, "lighthouse").hits) == 0
    assert len(search.search(ada, "harbour").hits) == 1


def test_a_trimmed_session_is_continued_like_any_other(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2))
    trimmed(session, settings, to=4)
    added = recorder.append(session, model_input("and now?"), after=8)
    assert (added.seq, added.moved_head) == (9, True)
    assert list(verification.verify()) == []
    trimmed(session, settings, to=1)
    assert (numbers(session), session.trimmed_through) == ([9], 8)
    assert list(verification.verify()) == []


def test_what_was_trimmed_and_its_seal_are_told_to_the_audit_chain(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2))
    seal = Message.objects.get(session=session, seq=4).seal
    trimmed(session, settings, to=4)
    (event,) = AuditEvent.objects.filter(action="trim", session=session.pk)
    assert f'"through":4,"entries":4,"seal":"{seal.hex()}"' in event.details
    assert session.anchor_seal == seal


def test_a_long_trim_is_a_row_of_small_ones(ada: Any, settings: Any) -> None:
    session = relayed(ada, *(entry for number in range(300) for entry in turn(number)))
    trimmed(session, settings, to=8)
    assert (len(numbers(session)), session.trimmed_through) == (8, 1_192)
    assert 2 <= AuditEvent.objects.filter(action="trim").count() <= 4
    assert list(verification.verify()) == []


def test_two_purges_with_a_plan_for_the_same_session_do_not_move_its_anchor_back(ada: Any) -> None:
    session = relayed(
        ada, SystemInstructionSet(instruction="be brief"), *(model_input(f"word {place}") for place in range(9))
    )
    plans = [trimming.plan_trim(session, limit=limit) for limit in (2, 6)]
    for plan in plans:
        list(trimming.trim(plan))
    session.refresh_from_db()
    assert session.trimmed_through == plans[0].cut > plans[1].cut > 0
    assert list(verification.verify()) == []


def test_a_held_session_is_neither_trimmed_nor_dropped(ada: Any, staff: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2))
    retention.hold(session, actor=staff, reason="case 7")
    settings.CHAT_HISTORY_BODY_DAYS = 1
    settings.CHAT_HISTORY_TTL_DAYS = 0
    settings.CHAT_HISTORY_MAX_MESSAGES = 1
    report = retention.purge(dry_run=False, now=timezone.now() + timedelta(days=9))
    assert (report.trimmed, report.dropped, len(numbers(session))) == (0, 0, 8)


def test_a_key_has_its_own_cap_and_a_chat_has_none(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_MAX_MESSAGES = 2
    free = ApiKey.objects.create(
        name="free", prefix="free", secret_hash=b"1", owner=ada, recording="full", max_messages=0
    )
    tight = ApiKey.objects.create(
        name="tight", prefix="tight", secret_hash=b"2", owner=ada, recording="full", max_messages=4
    )
    words = [str(number) for number in range(8)]
    sessions = [create_chat(ada, *words, source="relay", api_key=key) for key in (None, free, tight)]
    chat = create_chat(ada, *words)
    retention.purge(dry_run=False)
    assert [len(numbers(session)) for session in (*sessions, chat)] == [2, 8, 4, 8]


def test_a_summary_goes_with_what_it_stands_for(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1))
    recorder.append_many(session, [Summary(first=1, last=4, summary="they talked"), *turn(2)], after=4)
    trimmed(session, settings, to=4)
    assert numbers(session) == [6, 7, 8, 9]
    assert list(verification.verify()) == []


def test_a_call_that_stands_open_is_never_parted_from_a_late_result(ada: Any, settings: Any) -> None:
    session = relayed(
        ada, model_input("one"), model_output("", tool_request("a")), model_input("never mind"), model_output("fine")
    )
    recorder.append(session, tool_results(tool_result("a")), after=2)
    trimmed(session, settings, to=1)
    assert numbers(session) == [1, 2, 3, 4, 5]
    assert list(verification.verify()) == []


# What still holds.


def test_an_instruction_that_still_holds_survives_the_trim_of_what_surrounds_it(ada: Any, settings: Any) -> None:
    tools = ToolsOffered(tools=(ToolDefinition(name="look"),))
    session = relayed(ada, SystemInstructionSet(instruction="be brief"), model_input("one"), model_output("two"))
    recorder.append_many(
        session, [tools, NotebookSet(content="remember"), PlanSet(plan="- [ ] a"), *turn(1), *turn(2)], after=3
    )
    before = selectors.snapshot(session)
    trimmed(session, settings, to=4)
    assert numbers(session) == [1, 4, 5, 6, 11, 12, 13, 14]
    after = selectors.snapshot(session)
    assert (after.system_instruction, after.notebook) == (before.system_instruction, before.notebook)
    assert after.plan == "- [ ] a"
    assert [tool.name for tool in after.tools] == ["look"]
    assert contents(session)[0] == "be brief"
    assert list(verification.verify()) == []


def test_it_goes_at_the_next_trim_once_another_has_taken_its_place(ada: Any, settings: Any) -> None:
    session = relayed(ada, SystemInstructionSet(instruction="be brief"), *turn(1), *turn(2))
    trimmed(session, settings, to=4)
    assert numbers(session)[0] == 1
    recorder.append_many(session, [SystemInstructionSet(instruction="be long"), *turn(3)], after=9)
    trimmed(session, settings, to=4)
    assert numbers(session)[0] == 10
    assert selectors.snapshot(session).system_instruction == "be long"
    assert list(verification.verify()) == []


def test_a_trim_waits_for_branches_under_different_instructions(ada: Any) -> None:
    outline = turns.Outline(head=5)
    for seq, parent, kind in [
        (1, 0, "system_instruction_set"), (2, 1, "model_input"), (3, 2, "system_instruction_set"),
        (4, 3, "model_input"), (5, 4, "model_input"), (6, 1, "model_input"),
    ]:  # fmt: skip
        outline.add(seq, parent, kind)
    assert 4 in outline.cuts()
    assert 4 not in outline.anchors()
    assert 5 in outline.anchors()


# Branches.


def test_branches_that_hang_on_trimmed_entries_stay_readable(ada: Any, settings: Any) -> None:
    session = relayed(ada, SystemInstructionSet(instruction="be brief"), *turn(1), *turn(2))
    branch = recorder.append(session, model_input("another way"), after=5)
    recorder.append_many(session, turn(3), after=9)
    trimmed(session, settings, to=9)
    assert session.trimmed_through == 5
    assert contents(session, leaf=branch.seq)[-1] == "another way"
    assert contents(session)[-1] == "answer 3"
    assert list(verification.verify()) == []


def test_a_head_that_went_back_is_not_trimmed_away(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2), *turn(3))
    recorder.move_head(session, to=4)
    assert trimmed(session, settings, to=2).trimmed == 0
    assert session.head == 4


def test_a_session_that_began_anew_is_whole_after_its_first_beginning_was_trimmed(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1))
    recorder.move_head(session, to=0)
    recorder.append(session, model_input("from a window that was still open"), after=4)
    recorder.append_many(session, turn(2), after=0)
    trimmed(session, settings, to=4)
    assert (session.trimmed_through, session.head) == (6, 10)
    assert list(verification.verify()) == []
    verification.rebuild(session)
    assert (session.head, numbers(session)) == (10, [7, 8, 9, 10])


# Dropping texts.


def dropped(settings: Any, *, after: float = 8) -> retention.PurgeReport:
    settings.CHAT_HISTORY_BODY_DAYS = 7
    return retention.purge(dry_run=False, now=timezone.now() + timedelta(days=after))


def test_old_texts_go_and_places_times_counts_digests_and_seals_stay(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1, input_tokens=10, output_tokens=3))
    recorder.rename(session, title="the harbour")
    kept = ("seq", "parent_seq", "kind", "created_at", "input_tokens", "model", "digest", "seal", "fingerprint")
    before = list(Message.objects.order_by("seq").values_list(*kept))
    sums = counters(session)
    report = dropped(settings)
    assert (report.dropped, report.search_rows) == (4, 4)
    assert list(Message.objects.order_by("seq").values_list(*kept)) == before
    assert set(Message.objects.values_list("body", "salt", "content")) == {(None, None, "")}
    assert list(ToolCall.objects.values_list("name", "status", "arguments", "result", "error")) == [
        ("sys_monitor", "failed", "", "", "")
    ]
    session.refresh_from_db()
    assert (counters(session), session.title) == (sums, "")
    assert len(search.search(ada, "question").hits) == 0
    assert list(verification.verify()) == []


def test_how_many_results_failed_is_known_after_their_texts_have_gone_and_goes_with_them(
    ada: Any, settings: Any
) -> None:
    session = relayed(ada, *turn(1), *turn(2), *turn(3))
    dropped(settings)
    trimmed(session, settings, to=5)
    session.refresh_from_db()
    assert session.error_count == 1
    assert list(verification.verify()) == []
    verification.rebuild(session)
    session.refresh_from_db()
    assert session.error_count == 1


def test_texts_are_dropped_by_whole_turns_oldest_first(ada: Any, settings: Any) -> None:
    old, young = timezone.now() - timedelta(days=9), timezone.now()
    entries = [
        model_input("one", at=old),
        model_output("two", at=old),
        model_input("three", at=old),
        model_output("four", at=young),
    ]
    session = recorder.start_session(owner=ada, source="relay", created_at=old, title="kept")
    recorder.append_many(session, entries, after=0)
    assert dropped(settings, after=0).dropped == 2
    assert contents(session) == ["", "", "three", "four"]
    session.refresh_from_db()
    assert session.title == "kept"
    assert list(verification.verify()) == []


def test_one_event_for_a_session_and_run_says_how_far_it_went(ada: Any, settings: Any) -> None:
    session = relayed(ada, *(entry for number in range(200) for entry in turn(number)))
    dropped(settings)
    (event,) = AuditEvent.objects.filter(action="drop")
    assert (event.session, event.details) == (session.pk, '{"through":800,"entries":800,"title":""}')
    dropped(settings)
    assert AuditEvent.objects.filter(action="drop").count() == 1


def test_a_drop_that_dies_half_way_is_taken_for_done_only_when_the_next_has_finished_it(
    ada: Any, settings: Any
) -> None:
    settings.CHAT_HISTORY_BODY_DAYS = 7
    session = relayed(ada, *(entry for number in range(200) for entry in turn(number)))
    later = timezone.now() + timedelta(days=8)

    def cut(what: str, count: int) -> None:
        if what == "dropped":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retention.purge(dry_run=False, now=later, progress=cut)
    session.refresh_from_db()
    assert (session.dropped_through, Message.objects.filter(dropped_at=None).count()) == (0, 300)
    assert retention.purge(dry_run=False, now=later).dropped == 300
    session.refresh_from_db()
    assert session.dropped_through == 800
    assert list(verification.verify()) == []


def test_texts_that_were_dropped_before_anybody_noted_how_far_are_looked_at_once_more(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1))
    dropped(settings)
    Session.objects.update(dropped_through=0)
    assert dropped(settings).dropped == 0
    assert Session.objects.get().dropped_through == session.version
    assert AuditEvent.objects.filter(action="drop").count() == 1


def test_an_instruction_that_young_entries_live_under_keeps_its_text(ada: Any, settings: Any) -> None:
    old = timezone.now() - timedelta(days=9)
    session = recorder.start_session(owner=ada, source="relay", created_at=old)
    opening = [
        SystemInstructionSet(instruction="be brief", at=old),
        model_input("one", at=old),
        model_output("two", at=old),
    ]
    recorder.append_many(session, [*opening, model_input("three"), model_output("four")], after=0)
    assert dropped(settings, after=0).dropped == 2
    assert selectors.snapshot(session).system_instruction == "be brief"
    assert dropped(settings, after=0).dropped == 0
    assert dropped(settings, after=8).dropped == 3
    assert list(verification.verify()) == []


def test_what_old_calls_were_made_from_is_dropped_too(ada: Any, settings: Any) -> None:
    session = relayed(ada, model_input("one"))
    exchange = exchanges.open_exchange(session, owner=ada, after=1, inputs={"screen": "x" * 70_000})
    exchanges.finish(exchange, model_output("two"), end_reason="done")
    Blob.objects.update(created_at=timezone.now() - timedelta(hours=2))
    dropped(settings)
    exchange = Exchange.objects.get()
    assert (exchange.inputs, exchange.end_reason, Blob.objects.count()) == ({}, "done", 0)


def test_a_dropped_session_can_still_be_continued_and_trimmed(ada: Any, settings: Any) -> None:
    session = relayed(ada, *turn(1), *turn(2))
    dropped(settings)
    recorder.append_many(session, turn(3), after=8)
    assert list(verification.verify()) == []
    trimmed(session, settings, to=8)
    assert numbers(session) == [5, 6, 7, 8, 9, 10, 11, 12]
    assert list(verification.verify()) == []


# Any tree, any cap.

KINDS = st.sampled_from(["said", "answered", "called", "results", "state", "note", "debug", "back", "spread"])


def grow(session: Session, plan: list[tuple[str, int]]) -> None:
    """Entries after existing ones, mostly the newest, sometimes an older one."""
    for kind, back in plan:
        places = [
            0,
            *Message.objects.filter(session=session)
            .exclude(kind__in=["debug_log", "head_moved"])
            .order_by("seq")
            .values_list("seq", flat=True),
        ]
        after = session.head if back > 4 else places[max(0, len(places) - 1 - back)]
        if kind == "back":
            if not 0 < after <= session.trimmed_through:
                recorder.move_head(session, to=after)
            continue
        entries: dict[str, list[Entry]] = {
            "said": [model_input("word")],
            "answered": [model_output("word", usage=Usage(input_tokens=3, output_tokens=1))],
            "called": [model_output("", tool_request("a"), tool_request("b"))],
            "results": [tool_results(tool_result("a", status="failed"), tool_result("b"))],
            "state": [SystemInstructionSet(instruction=f"{back}")],
            "note": [NotebookSet(content=f"{back}")],
            "debug": [DebugLog(message="x")],
            "spread": [model_output("", tool_request("a")), tool_results(tool_result("a"))],
        }
        recorder.append_many(session, entries[kind], after=after)


def pairs(session: Session) -> dict[int, list[Any]]:
    rows = ToolCall.objects.filter(session=session).order_by("message__seq", "index")
    found: dict[int, list[Any]] = {}
    for seq, *said_of in rows.values_list("message__seq", "call_id", "status", "answered_by"):
        found.setdefault(seq, []).append(tuple(said_of))
    return found


@how(deadline=None, max_examples=example_count(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(st.tuples(KINDS, st.integers(0, 12)), min_size=3, max_size=30), cap=st.integers(1, 12))
def test_after_any_trim_of_any_tree_the_rest_is_whole(
    ada: Any, settings: Any, plan: list[tuple[str, int]], cap: int
) -> None:
    without_guards(Session.objects.all()).delete()
    session = relayed(ada)
    grow(session, plan)
    assert list(verification.verify()) == []
    paired, held = pairs(session), selectors.snapshot(session)
    trimmed(session, settings, to=cap)
    assert pairs(session) == {seq: calls for seq, calls in paired.items() if seq > session.trimmed_through}
    assert list(verification.verify()) == []
    spoken = Message.objects.filter(session=session, kind__in=["model_input", "model_output", "tool_results"])
    assert session.head == 0 or session.head in numbers(session)
    after = selectors.snapshot(session)
    assert (after.system_instruction, after.notebook) == (held.system_instruction, held.notebook)
    sums = counters(session)
    verification.rebuild(session)
    assert counters(session) == sums
    assert list(verification.verify()) == []
    assert spoken.exists() == any(kind in ("said", "answered", "called", "results", "spread") for kind, _ in plan)
