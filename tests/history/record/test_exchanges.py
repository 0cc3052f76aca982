"""Calls to a model: written down before they are made, ended exactly once, with all there was of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from history import retention, verification
from history.access import keys
from history.entries import ModelOutput, Text, Usage
from history.errors import HistoryOff
from history.models import ApiKey, Exchange, Message, Session, TokenCalibration
from history.record import exchanges, partial_answers, recorder, selectors
from tests.factories import create_chat, inputs_of, model_input, model_output, tool_request
from tests.servers.writers import Writers

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_left_running(db: None) -> Iterator[None]:
    """What a test leaves open would be flushed by the next one."""
    yield
    for exchange in Exchange.objects.filter(ended_at=None):
        exchanges.finish(exchange, None, end_reason="stopped")


def open_exchanges(owner: Any, *, calls: int = 1) -> tuple[Session, list[Exchange]]:
    """A question, and calls to a model that is to answer it."""
    session = create_chat(owner, "a question")
    opened = [exchanges.open_exchange(session, owner=owner, after=1, model="model-1") for _ in range(calls)]
    return session, opened


def age_heartbeat(exchange: Exchange, *, for_seconds: float = 31) -> None:
    Exchange.objects.filter(pk=exchange.pk).update(heartbeat_at=timezone.now() - timedelta(seconds=for_seconds))


def stored_answers(session: Session) -> list[Message]:
    return list(Message.objects.filter(session=session, kind="model_output").order_by("seq"))


# Before the call.


def test_a_call_is_written_down_before_it_is_made(ada: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    stored = Exchange.objects.get(pk=exchange.pk)
    assert (stored.session_id, stored.after, stored.history_version, stored.ended_at) == (session.pk, 1, 1, None)
    assert stored.end_reason == ""


def test_what_a_call_was_made_from_comes_back_long_texts_and_all(ada: Any) -> None:
    inputs = {
        "system": "be careful " * 500,
        "tools": [{"name": "clock"}],
        "note": "a\0b",
        "factor": float("nan"),
        "k\0": 1,
    }
    session = create_chat(ada, "question")
    exchange = exchanges.open_exchange(session, owner=ada, after=1, inputs=inputs)
    stored = Exchange.objects.get(pk=exchange.pk)
    assert len(str(stored.inputs)) < 500
    assert stored.blobs.count() == 1
    expected = {"system": inputs["system"], "tools": [{"name": "clock"}], "note": "a�b", "factor": None, "k�": 1}
    assert inputs_of(stored) == expected


def test_the_same_long_input_is_stored_once(ada: Any) -> None:
    opened = [exchanges.open_exchange(None, owner=ada, inputs={"system": "x" * 5_000}) for _ in range(3)]
    assert len({exchange.blobs.get().pk for exchange in opened}) == 1


def test_with_history_off_no_call_is_written_down(ada: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_ENABLED = False
    with pytest.raises(HistoryOff):
        exchanges.open_exchange(None, owner=ada)
    assert not Exchange.objects.exists()


def test_history_switched_off_in_the_middle_ends_the_call_without_an_answer(ada: Any, settings: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    settings.CHAT_HISTORY_ENABLED = False
    assert exchanges.finish(exchange, model_output("too late"), end_reason="done") is None
    assert Exchange.objects.get(pk=exchange.pk).end_reason == "done"
    assert stored_answers(session) == []


# While it runs.


def test_all_partial_answers_are_flushed_in_one_batch(ada: Any) -> None:
    _, opened = open_exchanges(ada, calls=12)
    for place, exchange in enumerate(opened[:10]):
        exchanges.note_partial(exchange.pk, model_output(f"so far {place}"))
    with CaptureQueriesContext(connection) as few:
        assert exchanges.flush_partials() == 12
    # A savepoint around one statement for the texts and one for those that have nothing new to say.
    assert len(few.captured_queries) <= 4
    partials = [
        exchanges.partial_of(exchange) for exchange in Exchange.objects.filter(pk__in=[one.pk for one in opened])
    ]
    assert sorted(partial.text for partial in partials if partial) == sorted(f"so far {place}" for place in range(10))


def test_noting_an_answer_so_far_costs_no_query(ada: Any, django_assert_num_queries: Any) -> None:
    _, [exchange] = open_exchanges(ada)
    with django_assert_num_queries(0):
        for text in ("H", "He", "Hello"):
            exchanges.note_partial(exchange.pk, model_output(text))
    exchanges.flush_partials()
    exchange.refresh_from_db()
    partial = exchanges.partial_of(exchange)
    assert partial is not None
    assert partial.text == "Hello"
    assert stored_answers(exchange.session) == []  # type: ignore[arg-type]


def test_a_flush_is_a_sign_of_life_even_when_nothing_new_was_said(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, [exchange] = open_exchanges(ada)
    exchanges.note_partial(exchange.pk, model_output("so far"))
    exchanges.flush_partials()
    age_heartbeat(exchange)
    monkeypatch.setattr(partial_answers, "HEARTBEAT_SECONDS", 0)  # as if so much time had passed
    assert exchanges.flush_partials() == 1
    assert exchanges.sweep() == 0
    exchange.refresh_from_db()
    assert exchange.ended_at is None
    assert exchanges.partial_of(exchange) is not None


def test_who_gave_a_sign_of_life_a_moment_ago_and_has_nothing_new_costs_no_query(
    ada: Any, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(partial_answers, "HEARTBEAT_SECONDS", 600)
    open_exchanges(ada, calls=3)
    assert exchanges.flush_partials() == 3
    with django_assert_num_queries(0):
        assert exchanges.flush_partials() == 0


def test_a_partial_answer_that_the_database_did_not_take_is_flushed_the_next_time(ada: Any) -> None:
    _, [exchange] = open_exchanges(ada)
    exchanges.note_partial(exchange.pk, model_output("so far"))

    def refuse(*_: Any) -> None:
        raise DatabaseError("the disk is full")

    with connection.execute_wrapper(refuse), pytest.raises(DatabaseError):
        exchanges.flush_partials()
    exchanges.flush_partials()
    exchange.refresh_from_db()
    assert "so far" in exchange.partial


def test_what_is_noted_after_the_end_is_ignored(ada: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    exchanges.finish(exchange, model_output("whole"), end_reason="done")
    exchanges.note_partial(exchange.pk, model_output("late piece"))
    assert exchanges.flush_partials() == 0
    exchange.refresh_from_db()
    assert exchange.partial == ""
    assert [message.content for message in stored_answers(session)] == ["whole"]


# The end.


@pytest.mark.parametrize(
    ("end_reason", "status"),
    [
        ("done", "complete"),
        ("upstream_error", "failed"),
        ("client_gone", "interrupted"),
        ("stopped", "interrupted"),
        ("timeout", "interrupted"),
        ("upstream_cut", "interrupted"),
        ("server_lost", "interrupted"),
        ("something_new", "interrupted"),
    ],
)
def test_every_end_gives_one_message_with_an_honest_status(ada: Any, end_reason: str, status: str) -> None:
    session, [exchange] = open_exchanges(ada)
    appended = exchanges.finish(exchange, model_output("as far as it went"), end_reason=end_reason)
    assert appended is not None
    message = Message.objects.get(pk=appended.message_id)
    assert (message.status, message.end_reason, message.parent_seq) == (status, end_reason, 1)
    assert (exchange.end_reason, exchange.message_id, exchange.partial) == (end_reason, message.pk, "")
    assert session.pk == message.session_id


def test_an_error_without_a_word_is_a_failed_message_and_a_stop_without_a_word_is_none(ada: Any) -> None:
    session, [failed, stopped] = open_exchanges(ada, calls=2)
    assert exchanges.finish(failed, ModelOutput(error="overloaded"), end_reason="upstream_error") is not None
    assert exchanges.finish(stopped, ModelOutput(), end_reason="stopped") is None
    assert [(message.status, message.content) for message in stored_answers(session)] == [
        ("failed", "【错误】overloaded")
    ]


def test_an_exchange_ends_once_when_two_end_it(ada: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    twin = Exchange.objects.get(pk=exchange.pk)
    assert exchanges.finish(exchange, model_output("first"), end_reason="done") is not None
    assert exchanges.finish(twin, model_output("second"), end_reason="stopped") is None
    assert exchanges.finish(exchange, model_output("third"), end_reason="done") is None
    assert [message.content for message in stored_answers(session)] == ["first"]


def test_the_answer_follows_what_was_asked_even_when_the_person_went_elsewhere(ada: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    recorder.move_head(session, to=0)
    recorder.append(session, model_output("elsewhere"), after=0)
    appended = exchanges.finish(exchange, model_output("late"), end_reason="done")
    assert appended is not None
    assert not appended.moved_head
    branch = selectors.messages_of(session, leaf=appended.seq).messages
    assert [message.content for message in branch] == ["a question", "late"]


def test_an_end_that_fails_half_way_leaves_the_exchange_running_and_nothing_behind(ada: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    with pytest.raises(IntegrityError), transaction.atomic():
        exchanges.finish(exchange, model_output("whole"), end_reason="done", status_code=-1)
    exchange = Exchange.objects.get(pk=exchange.pk)
    assert exchange.ended_at is None
    assert stored_answers(session) == []
    assert exchanges.finish(exchange, model_output("whole"), end_reason="done", status_code=200) is not None


def test_the_database_refuses_an_end_without_a_reason(ada: Any) -> None:
    _, [exchange] = open_exchanges(ada)
    with pytest.raises(IntegrityError), transaction.atomic():
        Exchange.objects.filter(pk=exchange.pk).update(ended_at=timezone.now())


def test_usage_and_cost_are_kept_with_the_exchange_and_added_to_the_session(ada: Any) -> None:
    session, opened = open_exchanges(ada, calls=2)
    usage = Usage(input_tokens=100, output_tokens=20, raw={"prompt_tokens": 100})
    for exchange in opened:
        exchanges.finish(
            exchange, model_output("x", usage=usage), end_reason="done", cost=Decimal("0.01"), status_code=200
        )
    stored = Session.objects.get(pk=session.pk)
    assert (stored.cost, stored.input_tokens, stored.output_tokens) == (Decimal("0.02"), 200, 40)
    assert opened[0].usage["raw"] == {"prompt_tokens": 100}
    assert opened[0].status_code == 200


def test_a_call_can_be_opened_and_ended_with_any_input(ada: Any) -> None:
    session = recorder.start_session(owner=ada, client="c\0" * 100, agent="a" * 200, workspace="/w" * 300)
    recorder.append(session, model_input("question"), after=0)
    named: dict[str, Any] = {"model": "m\0" * 200, "provider": "p" * 200, "metadata": {"header": "\0\ud800"}}
    exchange = exchanges.open_exchange(session, owner=ada, after=1, estimated_tokens=10, **named)
    usage = Usage(input_tokens=10**400, source="provider")
    error = "<html>\0\ud800" + "x" * 100_000
    exchanges.finish(exchange, model_output("so", usage=usage), end_reason="upstream_error", error=error)
    exchange.refresh_from_db()
    assert exchange.error.startswith("<html>\ufffd")
    assert (len(exchange.model), len(exchange.provider), len(exchange.error)) == (100, 60, 65_536)


def test_a_call_outside_any_session_ends_without_a_message(ada: Any) -> None:
    exchange = exchanges.open_exchange(None, owner=ada, model="model-1")
    assert exchanges.finish(exchange, model_output("x", usage=Usage(input_tokens=9)), end_reason="done") is None
    assert exchange.usage["input_tokens"] == 9


# The sweep.


def test_a_writer_that_fell_silent_leaves_an_interrupted_message_with_what_there_was(ada: Any) -> None:
    session, [lost, alive] = open_exchanges(ada, calls=2)
    half = ModelOutput(
        parts=(Text(text="The answer is"), tool_request("c1", arguments='{"path": "/etc/ho')), model="model-1"
    )
    exchanges.note_partial(lost.pk, half)
    exchanges.flush_partials()
    age_heartbeat(lost)
    assert exchanges.sweep() == 1
    [message] = stored_answers(session)
    assert (message.status, message.end_reason, message.content) == ("interrupted", "server_lost", "The answer is")
    tool = session.tool_calls.get()
    assert (tool.status, tool.arguments) == ("interrupted", '{"path": "/etc/ho')
    lost.refresh_from_db()
    alive.refresh_from_db()
    assert (lost.end_reason, lost.message_id, alive.ended_at) == ("server_lost", message.pk, None)
    assert exchanges.sweep() == 0


def test_a_writer_that_fell_silent_before_the_first_word_leaves_no_message(ada: Any) -> None:
    session, [lost] = open_exchanges(ada)
    age_heartbeat(lost)
    exchanges.sweep()
    lost.refresh_from_db()
    assert (lost.end_reason, stored_answers(session)) == ("server_lost", [])


def swept(owner: Any) -> tuple[Session, Exchange]:
    """A writer that was silent for too long, and half of its answer."""
    session, [lost] = open_exchanges(owner)
    exchanges.note_partial(lost.pk, model_output("half"))
    exchanges.flush_partials()
    age_heartbeat(lost)
    exchanges.sweep()
    return session, lost


def test_a_writer_that_comes_back_after_the_sweep_with_the_whole_answer_is_heard(ada: Any) -> None:
    session, lost = swept(ada)
    whole = exchanges.finish(lost, model_output("whole"), end_reason="done")
    assert whole is not None
    assert whole.moved_head
    assert [message.content for message in selectors.messages_of(session).messages] == ["a question", "whole"]
    assert [message.content for message in stored_answers(session)] == ["half", "whole"]
    assert (lost.end_reason, lost.message_id) == ("done", whole.message_id)
    assert exchanges.finish(lost, model_output("again"), end_reason="done") is None
    assert list(verification.verify()) == []


def test_a_whole_answer_that_comes_back_late_does_not_move_who_has_gone_on(ada: Any) -> None:
    session, lost = swept(ada)
    session.refresh_from_db()
    recorder.append(session, model_input("go on from there"), after=session.head)
    whole = exchanges.finish(lost, model_output("whole"), end_reason="done")
    assert whole is not None
    assert not whole.moved_head
    page = selectors.messages_of(session, leaf=whole.seq).messages
    assert [message.content for message in page] == ["a question", "whole"]


def test_a_writer_that_comes_back_with_nothing_changes_nothing(ada: Any) -> None:
    session, lost = swept(ada)
    assert exchanges.finish(lost, None, end_reason="stopped") is None
    assert [message.content for message in stored_answers(session)] == ["half"]


def test_a_sign_of_life_in_the_last_moment_saves_an_exchange_and_it_goes_on(ada: Any) -> None:
    session, [exchange] = open_exchanges(ada)
    stale = Exchange.objects.get(pk=exchange.pk)
    limit = timezone.now() - timedelta(seconds=30)
    assert exchanges.finish(stale, None, end_reason="server_lost", silent_since=limit) is None
    exchanges.note_partial(exchange.pk, model_output("still here"))
    exchanges.flush_partials()
    exchange.refresh_from_db()
    assert (exchange.ended_at, "still here" in exchange.partial) == (None, True)
    assert exchanges.finish(exchange, model_output("whole"), end_reason="done") is not None
    assert len(stored_answers(session)) == 1


def test_one_exchange_that_cannot_be_ended_does_not_keep_the_others_from_it(ada: Any) -> None:
    session, [first, second] = open_exchanges(ada, calls=2)
    for exchange in (first, second):
        exchanges.note_partial(exchange.pk, model_output("half"))
    exchanges.flush_partials()
    age_heartbeat(first, for_seconds=60)
    age_heartbeat(second)
    Exchange.objects.filter(pk=first.pk).update(partial="no JSON at all")
    with pytest.raises(ExceptionGroup):
        exchanges.sweep()
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.end_reason, second.end_reason) == ("", "server_lost")
    assert len(stored_answers(session)) == 1


def test_a_key_told_meanwhile_to_keep_no_texts_ends_its_calls_without_an_answer(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, recording="full").api_key
    session = create_chat(ada, "question", source="relay", api_key=key)
    lost = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.note_partial(lost.pk, model_output("half"))
    exchanges.flush_partials()
    age_heartbeat(lost)
    ApiKey.objects.filter(pk=key.pk).update(recording="metadata")
    exchanges.sweep()
    lost.refresh_from_db()
    assert (lost.end_reason, lost.partial, stored_answers(session)) == ("server_lost", "", [])


def test_an_answer_to_something_trimmed_meanwhile_is_kept_at_the_head_of_today(ada: Any, settings: Any) -> None:
    session = create_chat(ada, "question", source="relay")
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    elsewhere = Session.objects.get(pk=session.pk)
    recorder.move_head(elsewhere, to=0)
    recorder.append_many(elsewhere, [model_input("a"), model_output("b"), model_input("c"), model_output("d")], after=0)
    settings.CHAT_HISTORY_MAX_MESSAGES = 2
    assert retention.purge(dry_run=False).trimmed
    assert exchanges.finish(exchange, model_output("whole"), end_reason="done") is not None
    assert [message.content for message in stored_answers(session)] == ["d", "whole"]


def test_a_partial_answer_that_cannot_be_read_still_ends(ada: Any) -> None:
    _, [lost] = open_exchanges(ada)
    Exchange.objects.filter(pk=lost.pk).update(partial='{"kind": "model_output", "parts": 7}')
    age_heartbeat(lost)
    exchanges.sweep()
    lost.refresh_from_db()
    assert lost.end_reason == "server_lost"


# Calibration.


def test_estimates_learn_from_what_the_vendor_counted(ada: Any) -> None:
    for _ in range(20):
        exchange = exchanges.open_exchange(None, owner=ada, model="model-x", estimated_tokens=1_000)
        usage = Usage(input_tokens=1_200, output_tokens=1)
        exchanges.finish(exchange, model_output("x", usage=usage), end_reason="done")
    known = TokenCalibration.objects.get(model="model-x")
    assert known.samples == 20
    assert known.factor == pytest.approx(1.2, abs=0.05)


@pytest.mark.parametrize("usage", [None, Usage(input_tokens=9, source="estimated"), Usage(input_tokens=0)])
def test_what_the_vendor_did_not_count_teaches_nothing(ada: Any, usage: Usage | None) -> None:
    exchange = exchanges.open_exchange(None, owner=ada, model="model-x", estimated_tokens=1_000)
    exchanges.finish(exchange, model_output("x", usage=usage), end_reason="done")
    assert not TokenCalibration.objects.exists()


# In other threads and processes, on a database of its own.


def test_of_many_who_end_an_exchange_at_once_exactly_one_does(writers: Writers) -> None:
    rounds = writers.run("race_to_finish", 12)
    assert len(rounds) == 12
    for outcome in rounds:
        assert (outcome["winners"], outcome["end"], outcome["whole"]) == (1, "done", 1), outcome
        assert outcome["on_path"] == ["whole"], outcome
        assert outcome["halves"] <= 1, "the sweep may have come first, but only once"


def test_a_killed_writer_leaves_exactly_one_interrupted_message(writers: Writers) -> None:
    [session] = writers.run("begin", 1)
    with writers.started("stream", session) as writer:
        flushed = [writers.next_line(writer) for _ in range(4)][-1]["flushed"]
        writer.kill()
        assert writer.wait() != 0
    writers.run("sweep")
    writers.run("sweep")
    survey = writers.run("survey", session)
    [message] = [row for row in survey["rows"] if row["kind"] == "model_output"]
    assert message["status"] == "interrupted"
    assert message["content"].startswith(flushed)
    assert survey["findings"] == []


def test_what_a_key_must_not_store_is_not_in_the_partial_answer_or_the_error_either(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, recording="redacted").api_key
    session = create_chat(ada, "question", source="relay", api_key=key)
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    secret = "sk-ant-" + "a1B2" * 12
    exchanges.note_partial(exchange.pk, model_output(f"the key is {secret}"))
    exchanges.flush_partials()
    exchange.refresh_from_db()
    assert "[redacted:" in exchange.partial
    assert secret not in exchange.partial
    exchanges.finish(exchange, model_output(f"the key is {secret}"), end_reason="done", error=f"refused {secret}")
    assert secret not in exchange.error
    message = Message.objects.get(session=session, seq=2)
    assert secret not in (message.body or "")
    assert sum(message.metadata["redacted"].values()) == 1
