"""The database is away while an answer is written: the whole answer is stored when it is back."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from history.answers.events import ToolCallPiece
from history.entries import ToolResults
from history.models import Exchange, Message
from history.record import exchanges
from relay import conversation
from relay.live import lost_runs, run_task, runs
from relay.models import Run
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk
from tests.relay.conversation.outages import database_away
from tests.relay.conversation.test_queue import REFUSE_ENTRIES, TAKE_ENTRIES, run_sql

KINDS = pytest.mark.parametrize("kind", [0, 1])
# Too long for a full disk.
LONG = "word " * 40_000


async def until_listening(talk: Talk) -> None:
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    await asyncio.sleep(0.05)


@KINDS
async def test_an_answer_that_ends_during_an_outage_is_stored_whole(talk: Talk, kind: int) -> None:
    gate = asyncio.Event()
    talk.scripted([gate, LONG], "Second")
    await talk.begin("one")
    await until_listening(talk)
    async with database_away(kind):
        gate.set()
        await asyncio.sleep(0.5)
        assert run_task.local_tasks, "it is still being stored"
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    answer = (await talk.messages())[-1]
    assert (answer.status, answer.content_chars) == ("complete", len(LONG))
    assert await in_database(lambda: Exchange.objects.get().end_reason) == "done"
    # The conversation is not stuck.
    await talk.send("two")
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", "Second")


@KINDS
async def test_what_waits_is_sent_when_the_database_is_back(talk: Talk, kind: int) -> None:
    gate = asyncio.Event()
    talk.scripted([gate, LONG], "Second")
    await talk.begin("one")
    await until_listening(talk)
    assert (await talk.send("two")).is_queued
    async with database_away(kind):
        gate.set()
        await asyncio.sleep(0.3)
    await talk.until(lambda: Message.objects.filter(content="Second").exists())
    await talk.until_ended()
    assert [text for _, text in await talk.texts()][2:] == ["two", "Second"]


@KINDS
async def test_a_stop_during_an_outage_keeps_the_whole_answer(talk: Talk, kind: int) -> None:
    gate = asyncio.Event()
    talk.scripted([gate, LONG])
    await talk.begin("one")
    await until_listening(talk)
    async with database_away(kind):
        gate.set()
        await asyncio.sleep(0.2)
        for live in list(run_task.local_tasks.values()):
            live.stop("stopped")
        await asyncio.sleep(0.1)
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.STOPPED
    answer = (await talk.messages())[-1]
    assert (answer.status, answer.content_chars) == ("complete", len(LONG))


@KINDS
async def test_results_of_tools_are_stored_once_after_an_outage(talk: Talk, kind: int) -> None:
    gate = asyncio.Event()
    await talk.agent(tools=["current_time"])
    wanted = ToolCallPiece(part="a", call_id="a", name="current_time", arguments="{}")
    talk.scripted([gate, LONG, wanted], "Done.")
    await talk.begin("one")
    await until_listening(talk)
    async with database_away(kind):
        gate.set()
        await asyncio.sleep(0.3)
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    kinds = await talk.kinds()
    assert kinds.count(ToolResults.kind) == 1
    assert (await talk.texts())[-1] == ("assistant", "Done.")


async def test_the_sweep_leaves_alone_what_this_process_stores(talk: Talk) -> None:
    """After an outage of a minute every sign of life is old, and its writer is well."""
    gate = asyncio.Event()
    talk.scripted([gate, LONG])
    await talk.begin("one")
    await until_listening(talk)
    async with database_away(0):
        gate.set()
        await asyncio.sleep(0.2)
    # The first that reaches the database after the outage is the sweep.
    long_ago = timezone.now() - timedelta(minutes=2)
    await in_database(lambda: Run.objects.filter(ended_at=None).update(heartbeat_at=long_ago))
    await in_database(lambda: Exchange.objects.filter(ended_at=None).update(heartbeat_at=long_ago))
    await in_database(lost_runs.sweep)
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.DONE
    assert [message.status for message in await talk.messages() if message.kind == "model_output"] == ["complete"]


async def test_an_answer_that_cannot_be_stored_gives_no_sign_of_life(talk: Talk) -> None:
    """The database is there and refuses: the run ends, and the sweep keeps what was noted."""
    gate = asyncio.Event()
    talk.scripted(["Half", gate, " of it"])
    await talk.begin("one")
    await until_listening(talk)
    await asyncio.sleep(0.1)
    await talk.flush()
    await in_database(lambda: run_sql(REFUSE_ENTRIES[connection.vendor]))
    gate.set()
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.FAILED
    assert await in_database(exchanges.flush_partials) == 0
    await in_database(lambda: run_sql(TAKE_ENTRIES[connection.vendor]))
    assert not run_task.local_tasks
    await conversation.stop(talk.session)
    await runs.stop_all()


async def test_the_end_of_the_process_tries_for_a_while_and_says_what_is_left(
    talk: Talk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runs, "DRAIN_SECONDS", 0.3)
    gate = asyncio.Event()
    talk.scripted([gate, LONG])
    await talk.begin("one")
    await until_listening(talk)
    async with database_away(0):
        gate.set()
        await asyncio.sleep(0.2)
        await runs.stop_all()
    assert "1 answers could not be stored before the end of the process" in caplog.text
    await talk.until_ended()
