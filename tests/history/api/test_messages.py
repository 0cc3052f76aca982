"""REST: messages of a session, in both directions, in the form that programs know."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from history import retention
from history.db.packing import LONG_TEXT
from history.entries import SystemInstructionSet, Usage
from history.models import Blob, Message, Session
from history.record import recorder
from project.accounts.models import User
from tests.clients import ApiClient
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


def numbers(page: Any) -> list[int]:
    return [message["seq"] for message in page["results"]]


def talk_with_tool(owner: User) -> Session:
    session = recorder.start_session(owner=owner)
    usage = Usage(input_tokens=70, output_tokens=7)
    recorder.append_many(
        session,
        [
            SystemInstructionSet(instruction="Be brief."),
            model_input("How busy is it?"),
            model_output("I'll look.", tool_request("c1"), usage=usage),
            tool_results(tool_result("c1", "3 %", duration=0.5)),
            model_output("Hardly."),
        ],
        after=0,
    )
    return session


def test_a_conversation_has_the_form_that_programs_know(ada: User) -> None:
    session = talk_with_tool(ada)
    page = ApiClient(ada).get(f"/sessions/{session.pk}/messages")
    assert (page["session_id"], page["message_count"], page["version"]) == (str(session.pk), 3, 5)
    assert [message["role"] for message in page["results"]] == ["system", "user", "assistant", "assistant"]
    asking = page["results"][2]
    assert (asking["content"], asking["seq"], asking["parent"], asking["kind"]) == ("I'll look.", 3, 2, "model_output")
    assert (asking["status"], asking["input_tokens"], asking["output_tokens"]) == ("complete", 70, 7)
    assert asking["metadata"] == {}
    (tool_call,) = asking["tool_calls"]
    assert (tool_call["id"], tool_call["tool_name"], tool_call["arguments"]) == ("c1", "sys_monitor", {"metric": "cpu"})
    assert (tool_call["result"], tool_call["status"], tool_call["duration"]) == ("3 %", "success", 0.5)
    assert tool_call["timestamp"]


def test_every_entry_of_the_path_can_be_asked_for(ada: User) -> None:
    session = talk_with_tool(ada)
    page = ApiClient(ada).get(f"/sessions/{session.pk}/messages?all=true")
    assert [message["kind"] for message in page["results"]] == [
        "system_instruction_set", "model_input", "model_output", "tool_results", "model_output",
    ]  # fmt: skip


def test_the_newest_twenty_come_first_and_pages_lead_both_ways(ada: User) -> None:
    session = create_chat(ada, *(f"text {number}" for number in range(1, 61)))
    api, path = ApiClient(ada), f"/sessions/{session.pk}/messages"
    newest = api.get(path)
    assert numbers(newest) == list(range(41, 61))
    assert newest["previous"] == f"http://testserver/api/history{path}?before=41"
    assert newest["next"] is None
    assert numbers(api.get(newest["previous"])) == list(range(21, 41))
    older = api.get(f"{path}?before=41&limit=5")
    assert numbers(older) == list(range(36, 41))
    assert numbers(api.get(older["previous"])) == list(range(31, 36))
    assert numbers(api.get(older["next"])) == list(range(41, 46))
    newer = api.get(f"{path}?after=40&limit=5")
    assert numbers(newer) == list(range(41, 46))
    first = api.get(f"{path}?after=0&limit=3")
    assert (numbers(first), first["previous"]) == ([1, 2, 3], None)
    assert numbers(api.get(first["next"])) == [4, 5, 6]
    assert numbers(api.get(f"{path}?after=60")) == []


def test_a_call_and_its_results_are_on_the_same_page(ada: User) -> None:
    session = talk_with_tool(ada)
    page = ApiClient(ada).get(f"/sessions/{session.pk}/messages?all=true&before=5&limit=1")
    assert numbers(page) == [3, 4]


def test_another_branch_is_a_parameter_and_moves_nothing(ada: User) -> None:
    session = create_chat(ada, "one", "two")
    recorder.edit(session, seq=1, entry=model_input("another one"))
    api, path = ApiClient(ada), f"/sessions/{session.pk}/messages"
    assert [message["content"] for message in api.get(path)["results"]] == ["another one"]
    assert [message["content"] for message in api.get(f"{path}?leaf=2")["results"]] == ["one", "two"]
    assert api.refused(f"{path}?leaf=99") == (404, "not_found")
    session.refresh_from_db()
    assert api.get(path)["head"] == session.head


def test_a_page_costs_the_same_few_queries_however_long_it_is(ada: User, django_assert_max_num_queries: Any) -> None:
    session = recorder.start_session(owner=ada)
    for number in range(20):
        entries = [model_input(f"{number}?"), model_output("", tool_request("c")), tool_results(tool_result("c"))]
        recorder.append_many(session, entries, after=session.head)
    api = ApiClient(ada)
    with django_assert_max_num_queries(9):
        assert len(api.get(f"/sessions/{session.pk}/messages?limit=60")["results"]) == 40


def test_asking_again_reads_no_message(ada: User, django_assert_max_num_queries: Any) -> None:
    session = create_chat(ada, "hello", "hello!")
    api = ApiClient(ada)
    tag = api.call("GET", f"/sessions/{session.pk}/messages")["ETag"]
    with django_assert_max_num_queries(4) as context:
        assert api.call("GET", f"/sessions/{session.pk}/messages", If_None_Match=tag).status_code == 304
    assert not any("history_message" in query["sql"] for query in context.captured_queries)


def test_a_very_long_text_says_so_and_can_be_read_whole(ada: User) -> None:
    text = "loom " * LONG_TEXT
    session = create_chat(ada, text)
    api = ApiClient(ada)
    (message_body,) = api.get(f"/sessions/{session.pk}/messages")["results"]
    assert (message_body["is_cut"], len(message_body["content"])) == (True, LONG_TEXT)
    whole = api.get(f"/sessions/{session.pk}/messages/1")
    assert whole["entry"]["parts"] == [{"type": "text", "text": text}]
    without_guards(Message.blobs.through.objects.filter(message__session=session)).delete()
    without_guards(Blob.objects.all()).delete()
    assert api.get(f"/sessions/{session.pk}/messages/1")["entry"] is None
    for seq in (2, 0, 2**70):
        assert api.refused(f"/sessions/{session.pk}/messages/{seq}") == (404, "not_found")


@pytest.mark.parametrize(
    "arguments",
    ["[" * 5_000 + "]" * 5_000, '{"a": NaN}', '{"a": "\\ud800"}', '{"a": 1', "9" * 5_000, "", '{"a": "\\u0000"}'],
)
def test_any_arguments_of_a_model_can_be_sent(ada: User, arguments: str) -> None:
    session = recorder.start_session(owner=ada)
    tool_call = model_output("", tool_request("c1", arguments=arguments))
    recorder.append_many(
        session, [model_input("a\0b \ud800"), tool_call, tool_results(tool_result("c1", "\ud800\0"))], after=0
    )
    api = ApiClient(ada)
    assert api.get(f"/sessions/{session.pk}/messages")["results"][1]["tool_calls"][0]["tool_name"] == "sys_monitor"
    assert api.get("/tool-calls")["results"][0]["is_cut"] == (len(arguments) > 2_000)
    assert api.get(f"/sessions/{session.pk}/messages/2")["entry"]["parts"]


def test_a_text_that_was_dropped_says_when(ada: User, settings: Any) -> None:
    session = create_chat(ada, "secret", "answer", source="relay")
    settings.CHAT_HISTORY_BODY_DAYS = 1
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=2))
    page = ApiClient(ada).get(f"/sessions/{session.pk}/messages")
    assert all(message["dropped_at"] for message in page["results"])
    assert "secret" not in str(page)
