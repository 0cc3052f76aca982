"""What a reader is promised of a session, a message and a call: names, defaults, order, and always the newest."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from history.access import keys, permissions
from history.access.permissions import Purpose
from history.entries import Media, ModelInput, SystemInstructionSet, Text, Usage, now
from history.models import Message, Session
from history.record import listing, recorder, selectors
from tests.clients import run_history_json
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db


# Sessions.


def test_a_new_session_has_the_id_that_was_asked_for_and_nothing_in_it(ada: Any) -> None:
    name = uuid4()
    recorder.start_session(owner=ada, id=name)
    session = permissions.find(ada, name, Purpose.LIST)
    assert session is not None
    assert (session.pk, session.version, selectors.messages_of(session).messages) == (name, 0, [])


def test_a_session_knows_its_messages_when_it_began_and_when_it_was_last_spoken_in(ada: Any) -> None:
    session = recorder.start_session(owner=ada, created_at=timezone.now() - timedelta(days=2))
    begun = session.created_at
    recorder.append(session, model_input("hello", at=begun + timedelta(hours=1)), after=0)
    stored = Session.objects.get(pk=session.pk)
    assert isinstance(stored.pk, UUID)
    assert [message.content for message in stored.messages.all()] == ["hello"]
    assert (stored.created_at, stored.last_activity_at) == (begun, begun + timedelta(hours=1))


def test_everything_that_is_said_can_be_read_at_once_and_moves_the_time_of_the_session(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    times = [session.last_activity_at]
    for number in range(3):
        recorder.append(session, model_input(f"text {number}"), after=number)
        seen = selectors.messages_of(Session.objects.get(pk=session.pk)).messages
        assert seen[-1].content == f"text {number}"
        times.append(Session.objects.get(pk=session.pk).last_activity_at)
    assert times == sorted(set(times))


def test_a_reader_who_looked_before_reads_what_others_have_written_since(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    reader = Session.objects.get(pk=session.pk)
    assert len(selectors.messages_of(reader).messages) == 2
    recorder.append(session, model_input("three"), after=2)
    assert [message.content for message in selectors.messages_of(reader).messages] == ["one", "two", "three"]
    recorder.move_head(session, to=1)
    assert [message.content for message in selectors.messages_of(reader).messages] == ["one"]
    assert [node.seq for node in selectors.snapshot(reader).nodes] == [1]


def test_the_sessions_of_a_key_are_listed_by_their_last_activity_newest_first(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, recording="full").api_key
    first, second, third = (create_chat(ada, "x", api_key=key, source="relay") for _ in range(3))
    create_chat(ada, "not by this key")
    recorder.append(first, model_output("back again"), after=1)
    listed = listing.list_sessions(permissions.sessions_for(key, Purpose.LIST)).sessions
    assert listed == [first, third, second]


def test_a_session_shows_key_times_counts_title_and_metadata(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, recording="full").api_key
    noted = {"client_id": "c-7", "tenant": {"name": "acme"}}
    session = recorder.start_session(owner=ada, api_key=key, source="relay", metadata=noted)
    usage = Usage(input_tokens=120, output_tokens=30)
    recorder.append_many(session, [model_input("Why is it slow?"), model_output("Because.", usage=usage)], after=0)
    stored = Session.objects.get(pk=session.pk)
    assert (stored.api_key, stored.title, stored.model, stored.metadata) == (key, "Why is it slow?", "model-1", noted)
    assert (stored.message_count, stored.input_tokens + stored.output_tokens) == (2, 150)
    assert stored.created_at <= stored.last_activity_at


def test_neither_a_sessions_id_nor_its_listing_shows_the_key(ada: Any) -> None:
    new = keys.create(name="laptop", owner=ada, recording="full")
    session = create_chat(ada, "hello", api_key=new.api_key, source="relay")
    secret = new.secret.rsplit("_", 1)[-1]
    assert session.pk.version == 4  # drawn by lot: nothing of the key goes into it
    for shown in (run_history_json("list"), run_history_json("show", session.pk)):
        assert secret not in str(shown)


# Messages.


def test_a_message_has_role_text_time_calls_and_metadata(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    at = now() - timedelta(minutes=5)
    recorder.append_many(
        session, [SystemInstructionSet(instruction="be kind"), model_input("hi", at=at), model_output("ho")], after=0
    )
    system, user, assistant = Message.objects.filter(session=session).order_by("seq")
    assert [row.role for row in (system, user, assistant)] == ["system", "user", "assistant"]
    assert (user.content, user.created_at) == ("hi", at)
    assert [list(row.tool_calls.all()) for row in (system, user, assistant)] == [[], [], []]
    assert (user.metadata, assistant.metadata) == ({}, {})
    assert user.metadata is not assistant.metadata


def test_a_message_tells_model_tokens_times_request_and_attachments(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    name = recorder.store_blob(b"\x89PNG", media_type="image/png")
    picture = Media(media_type="image/png", sha256=name, name="a.png", size=4)
    usage = Usage(input_tokens=120, output_tokens=30)
    answer = model_output("A cat.", usage=usage, provider="acme", latency=0.25, duration=1.5, request_id="req_1")
    recorder.append_many(session, [ModelInput(parts=(Text(text="What is it?"), picture)), answer], after=0)
    asked, told = Message.objects.filter(session=session).order_by("seq")
    assert (told.model, told.provider, told.request_id) == ("model-1", "acme", "req_1")
    assert (told.input_tokens, told.output_tokens, told.usage_source) == (120, 30, "provider")
    assert (told.latency, told.duration) == (0.25, 1.5)
    assert (asked.input_tokens, asked.latency, asked.request_id) == (0, None, "")
    entry = selectors.entries_of([asked])[0]
    assert isinstance(entry, ModelInput)
    assert entry.attachments == (picture,)
    assert bytes(asked.blobs.get().data) == b"\x89PNG"


def test_answers_and_instructions_carry_the_name_of_their_agent_and_inputs_do_not(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    entries = [
        SystemInstructionSet(instruction="be kind", agent="operator"),
        model_input("hi"),
        model_output("ho", agent="scout"),
    ]
    recorder.append_many(session, entries, after=0)
    rows = Message.objects.filter(session=session).order_by("seq")
    assert [(row.role, row.agent) for row in rows] == [("system", "operator"), ("user", ""), ("assistant", "scout")]


# Calls.


def test_a_call_has_tool_arguments_result_status_seconds_and_time_and_hangs_on_its_answer(ada: Any) -> None:
    session = create_chat(ada, "look")
    asked_at = now() - timedelta(seconds=9)
    asked = recorder.append(session, model_output("Let me see.", tool_request("c1"), at=asked_at), after=1)
    started = asked_at + timedelta(seconds=1)
    recorder.append(session, tool_results(tool_result("c1", "3 %", started_at=started, duration=0.5)), after=asked.seq)
    row = Message.objects.get(pk=asked.message_id).tool_calls.get()
    assert (row.name, row.call_id, row.arguments) == ("sys_monitor", "c1", '{"metric": "cpu"}')
    assert (row.result, row.status, row.duration) == ("3 %", "success", 0.5)
    assert (row.created_at, row.started_at, row.error) == (asked_at, started, "")


def test_results_name_the_call_and_the_tool_that_they_answer(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append_many(session, [model_output("", tool_request("c1"), tool_request("c2", "disk"))], after=1)
    told = recorder.append(session, tool_results(tool_result("c1"), tool_result("c2", "full", name="disk")), after=2)
    row = Message.objects.get(pk=told.message_id)
    entry: Any = selectors.entries_of([row])[0]
    assert (row.role, row.content) == ("tool", "3 %\n\nfull")
    assert [(one.call_id, one.name, one.text) for one in entry.results] == [
        ("c1", "sys_monitor", "3 %"),
        ("c2", "disk", "full"),
    ]
