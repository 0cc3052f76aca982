"""The tools that come with Parley, called as a model calls them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync

from history.access.reasons import open_for_reading
from history.context.messages import FINISH_TOOL
from history.entries import DebugLog, ToolResult
from history.models import Session
from history.record import recorder
from project.accounts.models import User
from relay.tools.base import ToolContext, all_tools, toolbox
from relay.tools.running import run_call
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results
from tests.history.access.test_permissions import with_right

NAMES = (
    "ask_user", "call_agent", "compress_chat_history", "current_time", "edit_notebook", "finish_task", "read_caller",
    "read_session", "search_history", "sys_monitor", "update_plan",
)  # fmt: skip


def used(name: str, user: Any, *, here: Any = None, **arguments: Any) -> ToolResult:
    context = ToolContext(user=user, session_id=here or uuid4())
    return async_to_sync(run_call)(
        tool_request("c1", name, json.dumps(arguments)), toolbox=all_tools(), context=context
    )


def said_by(name: str, user: Any, **arguments: Any) -> str:
    outcome = used(name, user, **arguments)
    assert outcome.status == "success", outcome.error
    return outcome.text


class TestTheRegistry:
    def test_there_are_these_tools(self) -> None:
        assert tuple(all_tools()) == NAMES

    def test_every_tool_and_every_parameter_is_described(self) -> None:
        for tool in all_tools().values():
            assert tool.description
            assert all(parameter["description"] for parameter in tool.parameters["properties"].values())

    def test_an_agent_gets_the_tools_it_names_as_far_as_they_are_known(self) -> None:
        box = toolbox(["sys_monitor", "shell", "current_time", "sys_monitor"])
        assert list(box) == ["sys_monitor", "current_time"]
        assert [tool.definition.name for tool in box.values()] == ["sys_monitor", "current_time"]
        metric = box["sys_monitor"].definition.parameters["properties"]["metric"]
        assert metric["enum"] == ("cpu", "memory", "disk", "all")

    def test_three_tools_tell_the_loop_what_to_do(self) -> None:
        directives = {tool.name: tool.directive for tool in all_tools().values() if tool.directive}
        assert directives == {"ask_user": "ask_user", "compress_chat_history": "compress", FINISH_TOOL: "finish_task"}


class TestSysMonitor:
    def test_the_processor_is_one_line(self) -> None:
        line = said_by("sys_monitor", None, metric="cpu")
        assert re.fullmatch(r"CPU \d+\.\d %   load \d+\.\d\d \d+\.\d\d \d+\.\d\d   \d+ cores?", line)

    def test_memory_and_disk_too(self) -> None:
        assert re.fullmatch(
            r"Memory \d+\.\d %   \d+\.\d of \d+\.\d GB used", said_by("sys_monitor", None, metric="memory")
        )
        assert re.fullmatch(r"Disk \d+\.\d %   \d+\.\d of \d+\.\d GB used", said_by("sys_monitor", None, metric="disk"))

    def test_without_a_metric_it_shows_all_three(self) -> None:
        assert [line.split()[0] for line in said_by("sys_monitor", None).splitlines()] == ["CPU", "Memory", "Disk"]

    def test_the_processor_is_measured_for_a_while(self) -> None:
        assert (used("sys_monitor", None, metric="cpu").duration or 0) >= 0.2

    async def test_the_loop_goes_on_meanwhile(self) -> None:
        context = ToolContext(user=None, session_id=uuid4())
        looks = asyncio.create_task(run_call(tool_request("c1"), toolbox=all_tools(), context=context))
        ticks = 0
        while not looks.done():
            await asyncio.sleep(0.001)
            ticks += 1
        assert ticks > 10

    def test_another_metric_is_refused_with_those_there_are(self) -> None:
        assert "must be one of cpu, memory, disk, all" in used("sys_monitor", None, metric="gpu").error


class TestCurrentTime:
    def test_it_is_that_of_the_person(self) -> None:
        text = said_by("current_time", User(time_zone="Asia/Shanghai"))
        assert text.endswith("+08:00 (Asia/Shanghai)")
        told = datetime.fromisoformat(text.split(" ", 1)[1].rpartition(" (")[0])
        assert abs(told - datetime.now(UTC)) < timedelta(minutes=1)
        assert text.split()[0] == f"{told:%A}"

    def test_or_of_the_server_or_of_another_place(self) -> None:
        assert said_by("current_time", User()).endswith("+00:00 (UTC)")
        assert said_by("current_time", User(), zone="Asia/Kolkata").endswith("+05:30 (Asia/Kolkata)")

    @pytest.mark.parametrize("zone", ["Mars/Base", "../../etc/passwd", "a\0b", "/etc/localtime"])
    def test_a_zone_that_is_none_is_refused(self, zone: str) -> None:
        assert "There is no time zone" in used("current_time", User(), zone=zone).error


class TestDirectives:
    def test_they_succeed_at_once(self) -> None:
        assert said_by("finish_task", None, result="Done.") == "The task is finished."
        assert said_by("ask_user", None, question="Which?", choices=["this", "that"]) == "The question was asked."

    @pytest.mark.parametrize(("name", "argument"), [("ask_user", "question"), ("finish_task", "result")])
    @pytest.mark.parametrize("blank", ["", "  ", "\n\t", "\u3000"])
    def test_a_blank_text_is_refused(self, name: str, argument: str, blank: str) -> None:
        assert f"The {argument} is empty. Write" in used(name, None, **{argument: blank}).error

    def test_they_take_what_they_need(self) -> None:
        assert "result is missing" in used("finish_task", None).error
        assert "item 2 of choices must be a string" in used("ask_user", None, question="?", choices=["a", 2]).error


@pytest.mark.django_db(transaction=True)
class TestSearchHistory:
    def test_a_hit_names_its_session_its_number_and_shows_why(self, ada: User) -> None:
        session = create_chat(ada, "How is the build server?", "The build server is well.", title="Servers")
        text = said_by("search_history", ada, query="build server")
        assert text.count(f"session {session.pk}") == 2
        first = text.split("\n\n")[0]
        assert first.startswith("1. Servers (")
        assert f"assistant; session {session.pk}, entry 2)\n   The build server is well." in first

    def test_nothing_of_a_stranger_is_found(self, ada: User, bob: User) -> None:
        session = create_chat(ada, "the secret word is xyzzy")
        assert said_by("search_history", bob, query="xyzzy") == "Nothing found."
        assert said_by("search_history", bob, query="xyzzy", session=str(session.pk)) == "Nothing found."

    def test_the_conversation_that_asks_is_left_out_unless_it_is_wanted(self, ada: User) -> None:
        here, there = create_chat(ada, "apples here"), create_chat(ada, "apples there")
        assert str(here.pk) not in said_by("search_history", ada, here=here.pk, query="apples")
        assert str(there.pk) in said_by("search_history", ada, here=here.pk, query="apples")
        both = said_by("search_history", ada, here=here.pk, query="apples", this_conversation=True)
        assert "here" in both
        assert "there" in both
        assert "apples here" in said_by("search_history", ada, here=here.pk, query="apples", session=str(here.pk))

    def test_hits_behind_many_of_this_conversation_are_still_found(self, ada: User) -> None:
        create_chat(ada, "apples there")
        here = create_chat(ada, *["apples"] * 30)
        text = said_by("search_history", ada, here=here.pk, query="apples", limit=5)
        assert "apples there" in text
        assert str(here.pk) not in text

    def test_no_more_than_asked_for_and_it_says_that_there_are_more(self, ada: User) -> None:
        create_chat(ada, *["apples"] * 12)
        text = said_by("search_history", ada, query="apples", limit=3)
        assert re.findall(r"^\d+\.", text, re.MULTILINE) == ["1.", "2.", "3."]
        assert "There are more" in text
        assert "There are more" not in said_by("search_history", ada, query="apples", limit=12)
        assert len(said_by("search_history", ada, query="apples", limit=10**9)) > len(text)

    def test_filters_narrow_it(self, ada: User) -> None:
        create_chat(ada, "apples by me", "apples by it")
        assert "by it" not in said_by("search_history", ada, query="apples", role="user")
        assert said_by("search_history", ada, query="apples", model="model-2") == "Nothing found."
        assert said_by("search_history", ada, query="apples", source="relay") == "Nothing found."
        tomorrow, today = datetime.now(UTC) + timedelta(days=1), datetime.now(UTC)
        assert said_by("search_history", ada, query="apples", since=f"{tomorrow:%Y-%m-%d}") == "Nothing found."
        assert "by me" in said_by(
            "search_history", ada, query="apples", since=f"{today:%Y-%m-%d}", until=f"{today:%Y-%m-%d}"
        )

    @pytest.mark.parametrize("when", ["yesterday", "9999-12-31", "0001-01-01T00:00+14:00"])
    def test_odd_times_are_answered_or_refused(self, ada: User, when: str) -> None:
        outcome = used("search_history", ada, query="apples", since=when, until=when)
        assert outcome.status == "success" or "valid time. Write 2026-11-01" in outcome.error

    def test_a_session_that_is_none_is_no_session(self, ada: User) -> None:
        assert used("search_history", ada, query="x", session="nonsense").error == "There is no such session."


@pytest.mark.django_db(transaction=True)
class TestReadSession:
    def test_it_reads_like_a_transcript(self, ada: User) -> None:
        session = recorder.start_session(owner=ada, title="Servers")
        entries = [
            model_input("How busy is it?"),
            model_output("I look.", tool_request("c1")),
            tool_results(tool_result("c1", "CPU 3.0 %")),
            model_output("Hardly."),
        ]
        recorder.append_many(session, entries, after=0)
        text = said_by("read_session", ada, session=str(session.pk))
        lines = text.splitlines()
        assert lines[0].startswith("Servers (3 messages, started ")
        assert re.search(r"#1 user, \d{4}-\d\d-\d\d \d\d:\d\d\nHow busy is it\?", text)
        assert "#2 assistant (model-1), " in text
        assert 'I look.\n→ sys_monitor {"metric": "cpu"}' in text
        assert "← sys_monitor success: CPU 3.0 %" in text
        assert lines[-1] == "Hardly."

    def test_another_users_session_answers_like_a_missing_one(self, ada: User, bob: User) -> None:
        session = create_chat(ada, "xyzzy")
        errors = {used("read_session", bob, session=name).error for name in (str(session.pk), str(uuid4()), "no id")}
        assert errors == {"There is no such session."}

    def test_a_stretch_before_after_or_around_an_entry(self, ada: User) -> None:
        session = create_chat(ada, *[f"number {n}." for n in range(1, 31)])

        def read(**where: Any) -> tuple[list[int], list[str]]:
            text = said_by("read_session", ada, session=str(session.pk), **where)
            return [int(seq) for seq in re.findall(r"^#(\d+)", text, re.MULTILINE)], re.findall("There are .*", text)

        assert read(limit=2) == ([29, 30], ["There are older entries: before=29"])
        assert read(before=10, limit=2) == (
            [8, 9],
            ["There are older entries: before=8", "There are newer entries: after=9"],
        )
        assert read(after=10, limit=2)[0] == [11, 12]
        assert read(around=10, limit=4)[0] == [9, 10, 11, 12]
        assert read(around=1, limit=1)[0] == [1, 2]
        assert read(around=10**30, limit=2)[0] == [30]
        assert read(before=-5)[0] == []

    def test_long_entries_share_the_space_and_show_their_length(self, ada: User) -> None:
        session = create_chat(ada, *["word " * 20_000] * 10, "the end")
        start = time.perf_counter()
        outcome = used("read_session", ada, session=str(session.pk))
        assert time.perf_counter() - start < 10
        assert len(outcome.text) < 50_000
        assert "output_chars" not in outcome.metadata
        assert outcome.text.count("bytes in total") == 10
        assert outcome.text.endswith("the end")

    def test_internal_entries_and_logs_are_left_out(self, ada: User) -> None:
        session = recorder.start_session(owner=ada)
        entries = [model_input("hello"), model_input("a note for the model", is_internal=True), model_output("hi")]
        recorder.append_many(session, entries, after=0)
        recorder.append(session, DebugLog(category="x", message="a log"), after=3)
        text = said_by("read_session", ada, session=str(session.pk))
        assert "hello" in text
        assert "a note for the model" not in text
        assert "a log" not in text

    def test_a_deleted_session_is_gone(self, ada: User) -> None:
        session = create_chat(ada, "xyzzy")
        Session.objects.filter(pk=session.pk).update(state=Session.State.DELETED, hidden_at=datetime.now(UTC))
        assert used("read_session", ada, session=str(session.pk)).error == "There is no such session."


@pytest.mark.django_db(transaction=True)
def test_a_tool_reads_another_users_session_only_after_a_reason(ada: User, staff: User) -> None:
    session = create_chat(ada, "the secret loom", title="Looms")
    assert used("read_session", staff, session=str(session.pk)).error == "There is no such session."
    lister = with_right(staff, "view_session")
    assert "do not have permission to read it" in used("read_session", lister, session=str(session.pk)).error
    assert said_by("search_history", lister, query="loom") == "Nothing found."
    auditor = with_right(staff, "view_session", "read_session")
    assert "give a reason" in used("read_session", auditor, session=str(session.pk)).error
    found = said_by("search_history", auditor, query="loom")
    assert "Session of " in found
    assert "Looms" not in found
    assert "secret" not in found
    open_for_reading(auditor, session, reason="ticket 7")
    assert "the secret loom" in said_by("read_session", auditor, session=str(session.pk))
    found = said_by("search_history", auditor, query="loom")
    assert "the secret loom" in found
    assert "Looms" in found
