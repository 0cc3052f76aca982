"""Every tool request gets exactly one result, also after errors and timeouts."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.db import connection, connections

from history.entries import ToolResult
from history.models import ToolCall
from history.record import recorder
from project.accounts.models import User
from relay.tools import running
from relay.tools.base import Tool, Toolbox, ToolContext, ToolError, tool
from relay.tools.running import AT_ONCE, answer_all, run_call, run_calls
from tests.factories import model_input, model_output, tool_request

CONTEXT = ToolContext(user=AnonymousUser(), session_id=uuid4(), agent="assistant")


@tool()
def add(context: ToolContext, a: int, b: int = 1) -> str:
    return str(a + b)


@tool()
async def add_in_the_loop(context: ToolContext, a: int) -> str:
    await asyncio.sleep(0)
    return f"{a + 1} in {threading.current_thread().name}"


def _length(context: ToolContext, text: str) -> str:
    return str(len(text))


def box(*tools: Tool) -> Toolbox:
    return {one.name: one for one in tools or (add, add_in_the_loop)}


def made(function: Callable[..., Any], **limits: Any) -> Toolbox:
    return box(tool(name="made", **limits)(function))


async def outcome(arguments: str, *, name: str = "add", tools: Toolbox | None = None) -> ToolResult:
    request = tool_request("c1", name, arguments)
    return await run_call(request, toolbox=box() if tools is None else tools, context=CONTEXT)


async def outcome_of(function: Callable[..., Any], **limits: Any) -> ToolResult:
    return await outcome("{}", name="made", tools=made(function, **limits))


class TestOneCall:
    async def test_a_result_has_the_id_the_name_the_times_and_a_summary_of_the_arguments(self) -> None:
        result = await outcome('{"a":  2,\n "b": 3}')
        assert (result.call_id, result.name, result.status, result.text, result.error) == (
            "c1", "add", "success", "5", "",
        )  # fmt: skip
        assert result.started_at is not None
        assert result.duration is not None
        assert 0 < result.duration < 5
        assert result.metadata["arguments"] == '{"a": 2, "b": 3}'

    async def test_an_async_tool_runs_in_the_loop_and_a_plain_one_in_a_thread(self) -> None:
        here = threading.current_thread().name
        assert (await outcome('{"a": 1}', name="add_in_the_loop")).text == f"2 in {here}"
        assert (await outcome_of(lambda context: threading.current_thread().name)).text == "tool"

    async def test_large_arguments_are_parsed_beside_the_event_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        threads: list[tuple[int, bool]] = []
        here, read = threading.get_ident(), running._read

        def note_thread(arguments: str) -> Any:
            threads.append((len(arguments), threading.get_ident() == here))
            return read(arguments)

        monkeypatch.setattr(running, "_read", note_thread)
        for size in (10, 200_000):
            arguments = json.dumps({"text": "x" * size})
            assert (await outcome(arguments, name="made", tools=made(_length))).text == str(size)
        [small, large] = threads
        assert (small[1], large[0] > 200_000, large[1]) == (True, True, False)

    @pytest.mark.parametrize("nothing", ["", "  ", "{}"])
    async def test_a_call_without_arguments_may_write_nothing(self, nothing: str) -> None:
        assert (await outcome(nothing, name="made", tools=made(lambda context: "done"))).text == "done"

    async def test_an_unknown_tool_is_told_which_there_are(self) -> None:
        result = await outcome("{}", name="sub")
        assert result.status == "failed"
        assert result.error == "There is no tool sub. Available tools: add, add_in_the_loop."

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ('{"a": 2, "b": ', "not valid JSON (Expecting value at character 14); they look incomplete"),
            ('{"a": "2', "not valid JSON (Unterminated string starting at at character 6); they look incomplete"),
            ('{"a": 2', "they look incomplete: write them again, and shorter."),
            ("{a: 2}", "not valid JSON (Expecting property name enclosed in double quotes at character 1)."),
            ('{"a": NaN}', "not valid JSON (NaN is not JSON)."),
            ("[" * 100_000, "not valid JSON"),
            ('{"a": "two"}', 'add was not called: a must be a whole number, not the text "two".'),
            ("[1, 2]", "add was not called: the arguments must be an object, not a list."),
        ],
    )
    async def test_arguments_that_do_not_fit_fail_with_the_reason(self, arguments: str, said: str) -> None:
        result = await outcome(arguments)
        assert result.status == "failed"
        assert said in result.error
        assert result.duration is not None

    async def test_a_tool_that_refuses_tells_the_model_why(self) -> None:
        def refuses(context: ToolContext) -> str:
            raise ToolError("There is no such town.")

        result = await outcome_of(refuses)
        assert (result.status, result.error) == ("failed", "There is no such town.")
        assert "traceback" not in result.metadata

    async def test_an_exception_is_a_short_error_and_its_traceback_is_kept(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def breaks(context: ToolContext) -> str:
            raise ZeroDivisionError("x" * 10_000)

        logging.getLogger("relay").addHandler(caplog.handler)
        result = await outcome_of(breaks)
        logging.getLogger("relay").removeHandler(caplog.handler)
        assert result.status == "failed"
        assert result.error.startswith("made failed: ZeroDivisionError: xxx")
        assert len(result.error) <= 500
        assert len(result.metadata["traceback"]) <= 3_000
        assert "Traceback" in caplog.text

    async def test_the_traceback_names_the_line_that_failed(self) -> None:
        def breaks(context: ToolContext) -> str:
            return str(1 / 0)

        assert "return str(1 / 0)" in (await outcome_of(breaks)).metadata["traceback"]

    @pytest.mark.parametrize("error", [SystemExit(3), StopIteration("over"), asyncio.CancelledError()])
    async def test_no_exception_of_a_tool_ends_the_server_or_hangs(self, error: BaseException) -> None:
        def breaks(context: ToolContext) -> str:
            raise error

        async def breaks_in_the_loop(context: ToolContext) -> str:
            raise error

        assert (await outcome_of(breaks, timeout=5)).status == "failed"
        assert (await outcome_of(breaks_in_the_loop, timeout=5)).status == "failed"

    async def test_a_tool_that_returns_no_text_failed(self) -> None:
        assert "returned no text but int" in (await outcome_of(lambda context: 5)).error


class TestLimits:
    async def test_a_call_that_takes_too_long_is_given_up(self) -> None:
        async def waits(context: ToolContext) -> str:
            await asyncio.sleep(60)
            return ""

        result = await outcome_of(waits, timeout=0.05)
        assert (result.status, result.error) == ("failed", "made took longer than 0.05 seconds and was cancelled.")
        assert result.duration is not None
        assert result.duration < 5

    async def test_a_thread_that_hangs_is_left_behind(self) -> None:
        goes_on = threading.Event()
        start = time.perf_counter()
        result = await outcome_of(lambda context: str(goes_on.wait(60)), timeout=0.05)
        goes_on.set()
        assert "took longer than" in result.error
        assert time.perf_counter() - start < 10

    async def test_a_time_limit_inside_a_tool_is_not_ours(self) -> None:
        async def gives_up(context: ToolContext) -> str:
            raise TimeoutError("the weather service did not answer")

        assert "the weather service did not answer" in (await outcome_of(gives_up)).error

    async def test_ten_megabytes_are_cut_with_a_note_that_says_how_long_they_were(self) -> None:
        result = await outcome_of(lambda context: "é" * 10_000_000)
        assert result.status == "success"
        assert result.text.startswith("é" * 50_000 + "\n\n[Cut off")
        assert "the first 50,000 of 10,000,000 characters." in result.text
        assert len(result.text) < 50_200
        assert result.metadata["output_chars"] == 10_000_000

    async def test_an_output_as_long_as_the_limit_is_whole(self) -> None:
        assert (await outcome_of(lambda context: "12345", output_chars=5)).text == "12345"


class TestManyCalls:
    async def test_results_come_in_the_order_asked_and_are_told_as_they_finish(self) -> None:
        told: list[int] = []
        may_end = [asyncio.Event() for _ in range(3)]
        next_one = {1: 2, 2: 0}

        async def waits(context: ToolContext, number: int) -> str:
            await may_end[number].wait()
            return f"number {number}"

        def listens(index: int, result: ToolResult) -> None:
            told.append(index)
            may_end[next_one.get(index, index)].set()

        may_end[1].set()
        requests = [tool_request(str(n), "made", f'{{"number": {n}}}') for n in range(3)]
        results = await run_calls(requests, toolbox=made(waits), context=CONTEXT, on_result=listens)
        assert [(result.call_id, result.text) for result in results.results] == [
            ("0", "number 0"), ("1", "number 1"), ("2", "number 2"),
        ]  # fmt: skip
        assert told == [1, 2, 0]
        assert results.agent == "assistant"

    async def test_calls_run_at_the_same_time(self) -> None:
        together = threading.Barrier(3)
        requests = [tool_request(str(n), "made", "{}") for n in range(3)]
        tools = made(lambda context: str(together.wait(timeout=10) >= 0))
        results = await run_calls(requests, toolbox=tools, context=CONTEXT)
        assert [result.text for result in results.results] == ["True"] * 3

    async def test_a_model_that_asks_for_a_hundred_gets_a_few_at_a_time(self) -> None:
        running: list[int] = []
        most = 0

        async def counts(context: ToolContext) -> str:
            nonlocal most
            running.append(1)
            most = max(most, len(running))
            await asyncio.sleep(0.001)
            running.pop()
            return ""

        requests = [tool_request(str(n), "made", "{}") for n in range(100)]
        results = await run_calls(requests, toolbox=made(counts), context=CONTEXT)
        assert len(results.results) == 100
        assert most == AT_ONCE

    async def test_one_bad_call_leaves_no_other_unanswered(self) -> None:
        """omnimind-ai/OmniBot#365"""
        requests = [
            tool_request("c1", "add", '{"a": 1}'),
            tool_request("c2", "add", '{"a": '),
            tool_request("c3", "unknown", "{}"),
            tool_request("c4", "add", '{"a": "x"}'),
            tool_request("c1", "add", '{"a": 4}'),
        ]
        results = await run_calls(requests, toolbox=box(), context=CONTEXT)
        assert [(result.call_id, result.status) for result in results.results] == [
            ("c1", "success"), ("c2", "failed"), ("c3", "failed"), ("c4", "failed"), ("c1", "success"),
        ]  # fmt: skip
        assert [result.text for result in results.results] == ["2", "", "", "", "5"]

    async def test_a_listener_that_fails_loses_no_result(self) -> None:
        heard: list[int] = []

        def listens(index: int, result: ToolResult) -> None:
            heard.append(index)
            raise RuntimeError("the socket is gone")

        requests = [tool_request(str(n), "add", '{"a": 1}') for n in range(3)]
        results = await run_calls(requests, toolbox=box(), context=CONTEXT, on_result=listens)
        assert [result.text for result in results.results] == ["2", "2", "2"]
        assert sorted(heard) == [0, 1, 2]

    async def test_no_calls_have_no_results(self) -> None:
        assert (await run_calls([], toolbox=box(), context=CONTEXT)).results == ()


class TestInterrupted:
    async def test_cancelling_ends_the_calls_and_every_one_can_still_be_answered(self) -> None:
        ended: list[str] = []

        async def waits(context: ToolContext, seconds: float) -> str:
            try:
                await asyncio.sleep(seconds)
            finally:
                ended.append(f"{seconds}")
            return "slept"

        requests = [tool_request("c1", "made", '{"seconds": 60}'), tool_request("c2", "made", '{"seconds": 0}')]
        done: dict[int, ToolResult] = {}
        one_is_done = asyncio.Event()

        def listens(index: int, result: ToolResult) -> None:
            done[index] = result
            one_is_done.set()

        task = asyncio.create_task(run_calls(requests, toolbox=made(waits), context=CONTEXT, on_result=listens))
        await one_is_done.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["0", "60"]
        results = answer_all(requests, done)
        assert [(result.call_id, result.status, result.text) for result in results.results] == [
            ("c1", "interrupted", ""), ("c2", "success", "slept"),
        ]  # fmt: skip
        assert results.results[0].error == "The call was interrupted before it ended."

    async def test_cancelling_does_not_wait_for_a_thread(self) -> None:
        goes_on = threading.Event()
        tools = made(lambda context: str(goes_on.wait(60)))
        task = asyncio.create_task(run_calls([tool_request("c1", "made", "{}")], toolbox=tools, context=CONTEXT))
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        goes_on.set()
        assert time.perf_counter() - start < 10

    def test_calls_that_were_never_tried_say_so(self) -> None:
        untried = answer_all([tool_request("c1")], {}).results[0]
        assert (untried.status, untried.error) == ("interrupted", "The call was interrupted before it ended.")


@pytest.mark.django_db
def test_every_call_is_recorded_with_its_id_status_duration_and_error(ada: User) -> None:
    requests = [
        tool_request("c1", "add", '{"a": 1}'),
        tool_request("c1", "add", '{"a": "x"}'),
        tool_request("c3", "unknown", "{}"),
    ]
    session = recorder.start_session(owner=ada)
    recorder.append_many(session, [model_input("add"), model_output("", *requests)], after=0)
    results = async_to_sync(run_calls)(requests, toolbox=box(), context=CONTEXT)
    recorder.append(session, results, after=2)
    rows = list(ToolCall.objects.filter(session=session))
    assert [(row.call_id, row.status, row.result) for row in rows] == [
        ("c1", "success", "2"), ("c1", "failed", ""), ("c3", "failed", ""),
    ]  # fmt: skip
    assert [row.error.split(":")[0] for row in rows] == [
        "", "add was not called", "There is no tool unknown. Available tools",
    ]  # fmt: skip
    assert all(row.duration is not None and row.started_at is not None for row in rows)


@pytest.mark.django_db(transaction=True)
async def test_a_thread_has_a_connection_of_its_own_and_leaves_it_closed() -> None:
    used: list[Any] = []

    def asks(context: ToolContext) -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        used.append(connections["default"])
        return "open" if used[0].connection is not None else "closed"

    assert (await outcome_of(asks)).text == "open"
    assert used[0].connection is None
    assert used[0] is not connections["default"]
