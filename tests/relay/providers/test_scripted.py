"""The provider for tests keeps the same promises as the real ones (S2.41)."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress

from history.answers.events import AnswerFailed, TextPiece, ToolCallPiece
from history.dialects import CallOptions
from relay.errors import Busy, Cut
from tests.relay.providers.provider_calls import call_provider, context, user_message
from tests.relay.providers.scripted import CUT, ScriptedProvider, Step


async def test_it_answers_what_it_was_given_in_turn_and_repeats_the_last() -> None:
    provider = ScriptedProvider("One.", ["Tw", "o."])
    assert [(await call_provider(provider)).text for _ in range(3)] == ["One.", "Two.", "Two."]
    assert (await call_provider(ScriptedProvider())).output.status == "complete"


async def test_it_remembers_what_it_was_asked() -> None:
    provider = ScriptedProvider(lambda sent_context, options: f"{sent_context.entries[0].content} by {options.model}")
    result = await call_provider(provider, context(user_message("What?")), model="script", temperature=0.1)
    assert result.text == "What? by script"
    [call] = provider.calls
    assert (call.context.system, call.options.temperature, call.outcome) == ("Be brief.", 0.1, "ended")
    assert result.notes.attempts == 1


async def test_calls_end_as_calls_do() -> None:
    provider = ScriptedProvider([ToolCallPiece(part="c", call_id="1", name="cpu", arguments="{}")])
    output = (await call_provider(provider)).output
    assert (output.end_reason, output.tool_requests[0].name) == ("tool_use", "cpu")


async def test_errors_and_cuts_come_where_they_are_written() -> None:
    errors: list[Step] = [Busy("later"), AnswerFailed(message="broken", kind="rate_limit"), CUT]
    provider = ScriptedProvider(*(["Half", error] for error in errors))
    result = [await call_provider(provider) for _ in errors]
    assert [type(one.error) for one in result] == [Busy, Busy, Cut]
    assert [one.text for one in result] == ["Half"] * 3
    assert {call.outcome for call in provider.calls} == {"failed"}


async def test_it_waits_for_a_time_or_for_a_sign() -> None:
    sign = asyncio.Event()
    provider = ScriptedProvider(["a", 0.1, "b", sign, "c"])
    began = time.monotonic()
    asyncio.get_running_loop().call_later(0.2, sign.set)
    assert (await call_provider(provider)).text == "abc"
    assert time.monotonic() - began >= 0.2


async def test_it_notices_when_the_caller_goes_away() -> None:
    provider = ScriptedProvider(["a", asyncio.Event(), "b"])
    async with aclosing(provider.call(context(), CallOptions())) as events:
        async for event in events:
            if isinstance(event, TextPiece):
                break
    task = asyncio.create_task(call_provider(provider))
    await asyncio.sleep(0.02)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert [call.outcome for call in provider.calls] == ["closed", "closed"]
