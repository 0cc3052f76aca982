"""Appending: numbers, branches, pairing, bookkeeping."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from history.entries import (
    DebugLog,
    HeadMoved,
    Media,
    ModelOutput,
    NotebookSet,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolsOffered,
    UnknownEntry,
    Usage,
    now,
)
from history.errors import HistoryOff, NoSuchBlob, NoSuchEntry, PairingError
from history.models import Blob, Message, SearchRow, Session, ToolCall
from history.models.append_only import ImmutableError
from history.record import recorder, selectors
from tests.factories import (
    create_chat,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)

pytestmark = pytest.mark.django_db


def contents(session: Session, **where: Any) -> list[str]:
    return [message.content for message in selectors.messages_of(session, **where).messages]


def test_versions_start_at_zero_and_every_entry_gets_the_next_as_its_number(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    assert session.version == 0
    first = recorder.append(session, model_input("hello"), after=0)
    second = recorder.append(session, model_output("hi"), after=first.seq)
    assert (first.seq, second.seq, session.version, session.head) == (1, 2, 2, 2)
    assert list(Message.objects.filter(session=session).values_list("seq", "parent_seq")) == [(1, 0), (2, 1)]


def test_an_entry_after_the_head_moves_the_head(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    assert recorder.append(session, model_input("three"), after=2).moved_head
    assert session.head == 3


def test_two_writers_at_one_parent_give_two_branches_and_the_second_is_told(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    here, there = Session.objects.get(pk=session.pk), Session.objects.get(pk=session.pk)
    first = recorder.append(here, model_input("mine"), after=2)
    second = recorder.append(there, model_input("yours"), after=2)
    assert first.moved_head
    assert not second.moved_head
    assert contents(session) == ["one", "two", "mine"]
    assert contents(session, leaf=second.seq) == ["one", "two", "yours"]


def test_a_run_follows_its_own_leaf_after_the_person_has_gone_elsewhere(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    asked = recorder.append(session, model_input("long question"), after=2)
    recorder.move_head(session, to=2)
    late = recorder.append(session, model_output("late answer"), after=asked.seq)
    assert not late.moved_head
    assert session.head == 2
    assert contents(session, leaf=late.seq) == ["one", "two", "long question", "late answer"]


def test_rolling_back_is_an_appended_fact_and_what_was_said_stays_readable(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    moved = recorder.move_head(session, to=2, by="ada")
    assert (session.version, session.head, session.message_count) == (5, 2, 2)
    assert contents(session) == ["one", "two"]
    assert contents(session, leaf=4) == ["one", "two", "three", "four"]
    entry = selectors.entries_of([Message.objects.get(session=session, seq=moved.seq)])[0]
    assert isinstance(entry, HeadMoved)
    assert (entry.to, entry.reason) == (2, "rollback")


def test_one_can_roll_back_to_the_very_start(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    recorder.move_head(session, to=0)
    assert contents(session) == []
    recorder.append(session, model_input("anew"), after=0)
    assert contents(session) == ["anew"]


def test_switching_to_another_branch_and_back_shows_each_whole(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    edited = recorder.edit(session, seq=3, entry=model_input("drei"))
    recorder.append(session, model_output("vier"), after=edited.seq)
    branch = session.head
    assert contents(session) == ["one", "two", "drei", "vier"]
    recorder.move_head(session, to=4, reason="switch")
    assert contents(session) == ["one", "two", "three", "four"]
    recorder.move_head(session, to=branch, reason="switch")
    assert contents(session) == ["one", "two", "drei", "vier"]
    assert session.message_count == 4


def test_regenerating_leaves_the_old_answer_beside_the_new(ada: Any) -> None:
    session = create_chat(ada, "question", "dull answer")
    after = recorder.regenerate(session, seq=2)
    new = recorder.append(session, model_output("bright answer"), after=after)
    assert contents(session) == ["question", "bright answer"]
    assert contents(session, leaf=2) == ["question", "dull answer"]
    assert new.moved_head


def test_an_entry_after_one_that_is_not_there_is_refused_and_nothing_is_stored(ada: Any) -> None:
    session = create_chat(ada, "one")
    with pytest.raises(NoSuchEntry, match="no entry 7"):
        recorder.append(session, model_input("two"), after=7)
    assert Session.objects.get(pk=session.pk).version == 1


def test_no_entry_follows_a_debug_log(ada: Any) -> None:
    session = create_chat(ada, "one")
    log = recorder.append(session, DebugLog(category="timing", message="slow"), after=1)
    assert not log.moved_head
    assert session.head == 1
    with pytest.raises(NoSuchEntry):
        recorder.append(session, model_output("two"), after=log.seq)
    assert contents(session) == ["one"]


def test_a_chain_is_stored_as_a_whole_or_not_at_all(ada: Any) -> None:
    session = create_chat(ada, "one")
    with pytest.raises(PairingError):
        recorder.append_many(session, [model_output("two"), tool_results(tool_result("unknown"))], after=1)
    assert Message.objects.filter(session=session).count() == 1


def test_entries_of_many_sessions_are_stored_in_one_batch(ada: Any) -> None:
    first, second = create_chat(ada, "a"), create_chat(ada, "b")
    appends = [
        recorder.Append(first.pk, model_output("a1"), 1),
        recorder.Append(second.pk, model_output("b1"), 1),
        recorder.Append(first.pk, model_input("a2"), None),
    ]
    assert [appended.seq for appended in recorder.append_batch(appends)] == [2, 2, 3]
    assert contents(first) == ["a", "a1", "a2"]
    assert contents(second) == ["b", "b1"]


def test_a_stored_entry_cannot_be_saved_again(ada: Any) -> None:
    message = Message.objects.get(session=create_chat(ada, "one"))
    message.content = "another"
    with pytest.raises(ImmutableError):
        message.save()


# What the database itself refuses.


def test_the_database_refuses_two_entries_with_one_number(ada: Any) -> None:
    message = Message.objects.get(session=create_chat(ada, "one"))
    message.pk, message._state.adding = None, True
    with pytest.raises(IntegrityError), transaction.atomic():
        message.save(force_insert=True)


@pytest.mark.parametrize("parent", [1, 2])
def test_the_database_refuses_a_parent_that_is_not_older(ada: Any, parent: int) -> None:
    session = create_chat(ada, "one")
    with pytest.raises(IntegrityError), transaction.atomic():
        without_guards(Message.objects.filter(session=session, seq=1)).update(parent_seq=parent)


def test_a_parent_in_another_session_cannot_be_written_down() -> None:
    assert not Message._meta.get_field("parent_seq").is_relation


def test_the_database_refuses_an_outcome_without_the_entry_that_holds_it(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        without_guards(ToolCall.objects.filter(session=session)).update(status="success")


def test_the_database_refuses_one_result_for_two_calls(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append_many(
        session,
        [model_output("", tool_request("c1"), tool_request("c2")), tool_results(tool_result("c1"), tool_result("c2"))],
        after=1,
    )
    with pytest.raises(IntegrityError), transaction.atomic():
        without_guards(ToolCall.objects.filter(session=session, index=1)).update(answer_index=0)


# Tool calls.


def test_a_call_is_pending_until_its_result_is_recorded(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1"), tool_request("c2", "disk")), after=1)
    assert [row.status for row in session.tool_calls.order_by("index")] == ["pending", "pending"]
    started = now() - timedelta(seconds=2)
    outcomes = tool_results(
        tool_result("c2", "full", name="disk", status="failed", error="timed out"),
        tool_result("c1", "3 %", started_at=started, duration=0.5),
    )
    recorder.append(session, outcomes, after=2)
    cpu, disk = session.tool_calls.order_by("index")
    assert (cpu.status, cpu.result, cpu.duration, cpu.started_at) == ("success", "3 %", 0.5, started)
    assert (disk.status, disk.error, disk.answered_by) == ("failed", "timed out", 3)
    assert session.tool_call_count == 2
    assert session.error_count == 1


def test_results_are_stored_in_the_order_in_which_they_were_asked_for(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1"), tool_request("c2")), after=1)
    recorder.append(session, tool_results(tool_result("c2", "second"), tool_result("c1", "first")), after=2)
    entry = selectors.entries_of([Message.objects.get(session=session, seq=3)])[0]
    assert [outcome.call_id for outcome in entry.results] == ["c1", "c2"]


def test_a_new_message_answers_open_calls_as_skipped(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    appended = recorder.append(session, model_input("never mind"), after=2)
    kinds = list(Message.objects.filter(session=session).order_by("seq").values_list("kind", flat=True))
    assert kinds == ["model_input", "model_output", "tool_results", "model_input"]
    assert appended.seq == 4
    assert session.tool_calls.get().status == "skipped"


def test_an_instruction_between_a_call_and_its_results_lets_the_call_stand_open(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    recorder.append(session, SystemInstructionSet(instruction="be brief"), after=2)
    recorder.append(session, tool_results(tool_result("c1")), after=3)
    assert session.tool_calls.get().status == "success"


@pytest.mark.parametrize(
    "outcomes", [tool_results(), tool_results(tool_result("other")), tool_results(tool_result("c1"), tool_result("c1"))]
)
def test_our_own_results_must_answer_every_call_once(ada: Any, outcomes: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    with pytest.raises(PairingError):
        recorder.append(session, outcomes, after=2)


def test_foreign_history_is_stored_as_it_came_and_marked(ada: Any) -> None:
    session = create_chat(ada, "look", source="relay")
    recorder.append(session, tool_results(tool_result("unknown")), after=1)
    row = Message.objects.get(session=session, seq=2)
    assert "answers no open call" in row.metadata["unpaired"]
    recorder.append(session, model_output("", tool_request("open")), after=2)
    recorder.append(session, model_input("next"), after=3)
    assert session.version == 4


def test_a_call_id_used_twice_in_one_answer_is_two_calls(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("same"), tool_request("same")), after=1)
    recorder.append(session, tool_results(tool_result("same", "first"), tool_result("same", "second")), after=2)
    assert [row.result for row in session.tool_calls.order_by("index")] == ["first", "second"]


def test_the_row_of_a_call_shows_the_outcome_on_the_path(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    recorder.append(session, tool_results(tool_result("c1", "first try")), after=2)
    recorder.move_head(session, to=2)
    assert session.tool_calls.get().status == "pending"
    recorder.append(session, tool_results(tool_result("c1", "second try")), after=2)
    assert session.tool_calls.get().result == "second try"
    recorder.move_head(session, to=3, reason="switch")
    assert session.tool_calls.get().result == "first try"


def test_results_on_a_branch_do_not_overwrite_the_outcome_on_the_path(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    recorder.append(session, tool_results(tool_result("c1", "mine")), after=2)
    recorder.append(session, tool_results(tool_result("c1", "yours")), after=2)
    assert session.tool_calls.get().result == "mine"


def test_the_calls_of_an_interrupted_answer_are_interrupted(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1", arguments='{"met'), status="interrupted"), after=1)
    row = session.tool_calls.get()
    assert (row.status, row.arguments) == ("interrupted", '{"met')


# Bookkeeping.


def test_counters_title_model_and_activity_follow_in_the_same_transaction(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append(session, model_input("Why is the build slow?"), after=0)
    usage = Usage(input_tokens=120, output_tokens=30)
    recorder.append(session, model_output("Because.", usage=usage, model="claude", agent="operator"), after=1)
    stored = Session.objects.get(pk=session.pk)
    assert (stored.title, stored.model, stored.agent) == ("Why is the build slow?", "claude", "operator")
    assert (stored.message_count, stored.input_tokens, stored.output_tokens) == (2, 120, 30)
    assert timezone.now() - stored.last_activity_at < timedelta(seconds=5)


def test_a_title_is_never_overwritten(ada: Any) -> None:
    session = create_chat(ada, "first words", "ok", "other words")
    assert session.title == "first words"
    recorder.rename(session, title="  My   own title ")
    recorder.append(session, model_input("more words"), after=3)
    assert Session.objects.get(pk=session.pk).title == "My own title"


def test_noise_and_internal_messages_make_no_title(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append(session, model_input("<system-reminder>be good</system-reminder>"), after=0)
    recorder.append(session, model_input("internal", is_internal=True), after=1)
    assert session.title == ""
    recorder.append(session, model_input("real question"), after=2)
    assert session.title == "real question"


def test_a_relayed_session_is_kept_for_thirty_days_after_its_last_entry(ada: Any) -> None:
    session = create_chat(ada, "hello", source="relay")
    assert session.expires_at is not None
    assert abs(session.expires_at - timezone.now() - timedelta(days=30)) < timedelta(minutes=1)
    assert create_chat(ada, "hello").expires_at is None


def test_appending_an_instruction_updates_what_holds_and_a_snapshot_keeps_what_held(ada: Any) -> None:
    session = create_chat(ada, "hello")
    recorder.append(session, SystemInstructionSet(instruction="be kind"), after=1)
    recorder.append(session, NotebookSet(content="likes tea"), after=2)
    recorder.append(session, ToolsOffered(tools=(ToolDefinition(name="clock"),)), after=3)
    before = selectors.snapshot(session)
    recorder.append(session, SystemInstructionSet(instruction="be brief"), after=4)
    after = selectors.snapshot(session)
    assert (before.system_instruction, before.notebook, before.version) == ("be kind", "likes tea", 4)
    assert [tool.name for tool in before.tools] == ["clock"]
    assert (after.system_instruction, after.notebook) == ("be brief", "likes tea")


def test_what_holds_follows_the_path_back(ada: Any) -> None:
    session = create_chat(ada, "hello")
    recorder.append(session, SystemInstructionSet(instruction="first"), after=1)
    recorder.append(session, SystemInstructionSet(instruction="second"), after=2)
    recorder.move_head(session, to=2)
    assert selectors.snapshot(session).system_instruction == "first"
    assert selectors.snapshot(session, leaf=3).system_instruction == "second"


# Forks.


def test_a_fork_copies_its_path_and_shares_nothing_afterwards(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    copy = recorder.fork(session, at=2, owner=ada)
    recorder.append(copy, model_input("another way"), after=copy.head)
    assert contents(copy) == ["one", "two", "another way"]
    assert contents(session) == ["one", "two", "three", "four"]
    assert (copy.forked_from_id, copy.forked_at) == (session.pk, 2)


def test_a_fork_of_a_branch_copies_the_branch_and_its_tool_calls(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three")
    edited = recorder.edit(session, seq=3, entry=model_input("drei"))
    recorder.append_many(
        session, [model_output("", tool_request("c1")), tool_results(tool_result("c1"))], after=edited.seq
    )
    leaf = session.head
    recorder.move_head(session, to=3, reason="switch")
    copy = recorder.fork(session, at=leaf, owner=ada)
    assert contents(copy) == ["one", "two", "drei", "", "3 %"]
    assert copy.tool_calls.get().status == "success"
    assert [message.seq for message in selectors.messages_of(copy).messages] == [1, 2, 3, 4, 5]


# Odd texts, long texts, unknown things.


def test_nul_bytes_and_lone_surrogates_are_stored_and_read_back(ada: Any) -> None:
    text = "a\0b \ud83d c 中文 😀"
    session = create_chat(ada, "question", text)
    message = Message.objects.get(session=session, seq=2)
    assert selectors.entries_of([message])[0].text == text
    assert "\0" not in message.content
    assert "中文 😀" in message.content


def test_a_tool_result_of_ten_megabytes_is_stored_and_its_row_stays_small(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append(session, model_output("", tool_request("c1")), after=1)
    text = "0123456789" * 1_000_000
    recorder.append(session, tool_results(tool_result("c1", text)), after=2)
    message = Message.objects.get(session=session, seq=3)
    assert len(message.body or "") < 2_000
    assert (len(message.content), message.content_chars) == (65_536, 10_000_000)
    assert selectors.entries_of([message])[0].text == text
    assert len(session.tool_calls.get().result) == 65_536


def test_the_same_system_prompt_is_stored_once(ada: Any) -> None:
    prompt = SystemInstructionSet(instruction="You are careful. " * 200)
    for _ in range(3):
        session = recorder.start_session(owner=ada)
        recorder.append(session, prompt, after=0)
        assert selectors.snapshot(session).system_instruction == prompt.instruction
    assert Blob.objects.count() == 1


def test_an_attachment_must_be_stored_before_it_is_named(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    name = recorder.store_blob(b"\x89PNG", media_type="image/png")
    picture = Media(media_type="image/png", sha256=name, size=4)
    recorder.append(session, model_input("look").__class__(parts=(Text(text="look"), picture)), after=0)
    assert Message.objects.get(session=session).blobs.get().pk == name
    with pytest.raises(NoSuchBlob, match="store_blob"):
        recorder.append(
            session, model_input("x").__class__(parts=(Media(media_type="image/png", sha256="0" * 64),)), after=1
        )


def test_an_unknown_kind_is_kept_as_it_is(ada: Any) -> None:
    thing = {"kind": "planner_directive", "at": "2026-01-02T03:04:05+00:00", "steps": [1, {"$blob": "not ours"}]}
    session = recorder.start_session(owner=ada)
    recorder.append(session, UnknownEntry(data=thing), after=0)
    message = Message.objects.get(session=session)
    entry = selectors.entries_of([message])[0]
    assert message.kind == "planner_directive"
    assert isinstance(entry, UnknownEntry)
    assert entry.data["steps"][1] == {"$blob": "not ours"}


def test_fields_and_metadata_that_we_do_not_know_survive(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    entry = model_input("hi", metadata={"tenant": {"id": 7, "tags": ["a"]}}, extra={"new_field": [1, 2]})
    recorder.append(session, entry, after=0)
    assert selectors.entries_of(selectors.messages_of(session).messages) == [entry]


def test_a_failed_answer_is_marked_for_people_but_not_in_its_body(ada: Any) -> None:
    session = create_chat(ada, "question")
    recorder.append(session, ModelOutput(status="failed", error="the vendor is overloaded"), after=1)
    message = Message.objects.get(session=session, seq=2)
    assert message.content == "【错误】the vendor is overloaded"
    assert "【错误】" not in (message.body or "")
    assert session.error_count == 1


# Off.


def test_with_history_off_nothing_is_written_and_reading_goes_on(ada: Any, settings: Any) -> None:
    session = create_chat(ada, "before")
    settings.CHAT_HISTORY_ENABLED = False
    with pytest.raises(HistoryOff, match="CHAT_HISTORY_ENABLED"):
        recorder.append(session, model_output("after"), after=1)
    with pytest.raises(HistoryOff):
        recorder.start_session(owner=ada)
    assert contents(session) == ["before"]


def test_search_rows_are_written_with_the_entry(ada: Any) -> None:
    session = create_chat(ada, "find me")
    assert SearchRow.objects.filter(message__session=session).count() == 1
    assert connection.vendor in ("sqlite", "postgresql")
