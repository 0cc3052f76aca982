"""A run outlives its socket: stopping, queueing, branches, the end of the process, and coming back."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone

from history import retention
from history.answers.events import ToolCallPiece
from history.entries import ToolResult
from history.models import Exchange, Message, Session
from history.record import exchanges
from relay import conversation
from relay.agents import tool_calls
from relay.conversation import NotPossible
from relay.errors import OverAllowance
from relay.live import groups, lost_runs, run_task, runs
from relay.live.frames import RunSnapshot
from relay.live.run_task import RunTask
from relay.models import Allowance, QueuedMessage, Run
from relay.runtime import event_loop
from relay.runtime.async_db import in_database
from relay.tools.base import ToolContext, tool, toolbox
from tests.relay.conftest import Talk


async def test_two_who_write_after_the_same_entry_get_two_branches_and_two_answers(talk: Talk) -> None:
    talk.scripted(lambda context, options: f"You said {context.entries[-1].content}.")
    await talk.begin("Hello")
    await talk.until_ended()
    seen = await talk.head()
    first, second = await asyncio.gather(talk.send("one", after=seen), talk.send("two", after=seen))
    await talk.until_ended()
    assert sorted([first.is_branch, second.is_branch]) == [False, True]
    leaves = {"one": first, "two": second}
    for word, sent in leaves.items():
        answer = await in_database(Message.objects.get, session=talk.session, parent_seq=sent.seq)
        assert answer.content == f"You said {word}."
    on_path = next(word for word, sent in leaves.items() if not sent.is_branch)
    assert (await talk.texts())[-1] == ("assistant", f"You said {on_path}.")


async def test_what_is_written_during_an_answer_waits_for_its_end_and_is_sent_in_order(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["First", gate], "Second", "Third")
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    seen = await talk.head()
    assert (await talk.send("two", after=seen)).is_queued
    assert (await talk.send("three", after=seen)).is_queued
    assert await in_database(QueuedMessage.objects.count) == 2
    gate.set()
    await talk.until(lambda: Message.objects.filter(kind="model_output").count() == 3)
    await talk.until_ended()
    assert await talk.texts() == [
        ("user", "one"), ("assistant", "First"), ("user", "two"), ("assistant", "Second"),
        ("user", "three"), ("assistant", "Third"),
    ]  # fmt: skip
    assert await in_database(QueuedMessage.objects.count) == 0


async def test_after_a_stop_what_waits_goes_on_waiting_until_it_is_sent_or_taken_back(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()], "Second")
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    await talk.send("two", after=await talk.head())
    await talk.send("three", after=await talk.head())
    await talk.stop()
    await talk.until_ended()
    waiting = await in_database(lambda: list(QueuedMessage.objects.all()))
    assert [one.text for one in waiting] == ["two", "three"]
    await conversation.unqueue(talk.session, queued_id=waiting[1].pk)
    await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    await talk.until_ended()
    assert (await talk.texts())[-2:] == [("user", "two"), ("assistant", "Second")]


async def test_removing_a_session_takes_its_running_answer_and_its_queue_along(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.Event()
    provider = talk.scripted(["First", gate])
    await talk.begin("one")
    await talk.until(lambda: provider.calls)
    await talk.send("two", after=await talk.head())
    assert await in_database(lambda: (Run.objects.count(), QueuedMessage.objects.count())) == (1, 1)
    await in_database(lambda: retention.erase(talk.session, actor=talk.user, reason="a test"))
    assert await in_database(lambda: (Run.objects.count(), QueuedMessage.objects.count())) == (0, 0)
    assert not await in_database(Session.objects.exists)
    gate.set()
    await talk.until(lambda: not run_task.local_tasks)
    assert not await in_database(Run.objects.exists)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_queue_has_an_end(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()])
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    for number in range(20):
        await talk.send(f"more {number}", after=await talk.head())
    with pytest.raises(NotPossible):
        await talk.send("too much", after=await talk.head())


async def test_a_stop_that_another_process_asks_for_is_found_in_the_row(talk: Talk) -> None:
    talk.scripted(["The beginning", asyncio.Event()])
    await talk.begin()
    await talk.until(lambda: Exchange.objects.exists())
    await in_database(lambda: Run.objects.update(stop_requested_at=timezone.now()))
    await in_database(runs.send_heartbeats)
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.STOPPED
    last = (await talk.messages())[-1]
    assert (last.content, last.status, last.end_reason) == ("The beginning", "interrupted", "stopped")


async def test_a_stop_before_the_first_word_leaves_the_question_and_nothing_else(talk: Talk) -> None:
    provider = talk.scripted([asyncio.Event()])
    await talk.begin("Hello?")
    await talk.until(lambda: provider.calls)
    await talk.stop()
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.STOPPED
    assert await talk.texts() == [("user", "Hello?")]
    assert provider.calls[0].outcome == "closed"
    assert await in_database(lambda: Exchange.objects.get().end_reason) == "stopped"


async def test_a_stop_while_tools_run_keeps_what_is_done_and_says_which_calls_were_interrupted(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    @tool()
    async def never_done(context: ToolContext) -> str:
        """Waits for ever."""
        await asyncio.Event().wait()
        return "never"

    there = toolbox(["current_time"])
    monkeypatch.setattr(tool_calls, "toolbox", lambda names: {"never_done": never_done, **there})
    heard = asyncio.Event()
    note = RunTask.on_tool_result

    def noted(live: RunTask, *, seq: int, index: int, result: ToolResult) -> None:
        note(live, seq=seq, index=index, result=result)
        heard.set()

    monkeypatch.setattr(RunTask, "on_tool_result", noted)
    talk.scripted(
        [
            ToolCallPiece(part="a", call_id="a", name="never_done", arguments="{}"),
            ToolCallPiece(part="b", call_id="b", name="current_time", arguments="{}"),
        ],
        "never",
    )
    await talk.begin("Look.")
    await asyncio.wait_for(heard.wait(), 10)
    await talk.stop()
    assert (await talk.until_ended()).outcome == Run.Outcome.STOPPED
    [results] = [entry for entry in await talk.entries() if entry.kind == "tool_results"]
    assert [(result.call_id, result.status) for result in results.results] == [("a", "interrupted"), ("b", "success")]


async def test_a_stop_between_an_answer_and_its_tools_says_which_calls_were_interrupted(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = RunTask.on_stored

    async def stored_and_stopped(live: RunTask, *, leaf: int) -> None:
        live.stop("stopped")
        await stored(live, leaf=leaf)

    monkeypatch.setattr(RunTask, "on_stored", stored_and_stopped)
    await talk.agent(tools=["current_time", "sys_monitor"])
    wanted = [ToolCallPiece(part=name, call_id=name, name="current_time", arguments="{}") for name in ("a", "b")]
    talk.scripted(wanted, "never")
    await talk.begin("Look.")
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.STOPPED
    [results] = [entry for entry in await talk.entries() if entry.kind == "tool_results"]
    assert [(result.call_id, result.status) for result in results.results] == [
        ("a", "interrupted"),
        ("b", "interrupted"),
    ]


async def test_a_process_that_ends_keeps_what_there_is_and_the_answer_can_be_continued(talk: Talk) -> None:
    talk.scripted(["The first half", asyncio.Event()], " and the second.")
    await talk.begin("Tell me.")
    await talk.until(lambda: Exchange.objects.exists())
    await asyncio.sleep(0.1)
    await runs.stop_all()
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.LOST
    last = (await talk.messages())[-1]
    assert (last.content, last.status, last.end_reason) == ("The first half", "interrupted", "server_stopped")
    await conversation.continue_(talk.user, talk.session)
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", " and the second.")


async def test_a_run_whose_process_was_killed_is_swept_and_its_text_is_kept(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk.scripted(["Half an answer", asyncio.Event()])
    await talk.begin("Tell me.")
    await talk.until(lambda: Exchange.objects.exists())
    await asyncio.sleep(0.1)
    await talk.flush()
    long_ago = timezone.now() - timedelta(minutes=1)
    await in_database(lambda: Run.objects.update(heartbeat_at=long_ago))
    await in_database(lambda: Exchange.objects.update(heartbeat_at=long_ago))
    with monkeypatch.context() as another_process:  # a process does not sweep its own runs
        another_process.setattr(lost_runs, "local_tasks", {})
        await in_database(lost_runs.sweep)
    await in_database(exchanges.sweep)
    run = await in_database(Run.objects.get)
    assert run.outcome == Run.Outcome.LOST
    last = (await talk.messages())[-1]
    assert (last.content, last.status, last.end_reason) == ("Half an answer", "interrupted", "server_lost")


async def until_it_says(text: str, run_id: UUID) -> RunSnapshot:
    for _ in range(1_000):
        here = await run_task.read_snapshot(run_id)
        if here and "".join(piece[2] for piece in here.pieces) == text:
            return here
        await asyncio.sleep(0.01)
    raise AssertionError(f"it never said {text}")


async def test_other_processes_see_the_noted_answer_and_its_frame_number(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["one ", "two ", gate, "three"])
    await talk.begin("Count.")
    run = await talk.until(lambda: Run.objects.first())
    here = await until_it_says("one two ", run.pk)
    await talk.flush()
    there = await in_database(run_task.read_start, run.pk)
    assert there is not None
    assert (there.n, there.exchange) == (here.n, here.exchange)
    assert there.pieces == here.pieces == [["text", "text", "one two "]]
    gate.set()
    await talk.until_ended()


async def test_editing_stops_the_answer_that_is_on_its_way_and_asks_anew(talk: Talk) -> None:
    talk.scripted(["Never to be finished", asyncio.Event()], "Better.")
    await talk.begin("Wrnog")
    await talk.until(lambda: Exchange.objects.exists())
    await asyncio.sleep(0.1)
    first = (await talk.messages())[-1]
    await conversation.edit(talk.user, talk.session, seq=first.seq, draft=conversation.MessageDraft(text="Right"))
    await talk.until_ended()
    assert await talk.texts() == [("user", "Right"), ("assistant", "Better.")]
    beside = await in_database(lambda: Message.objects.get(session=talk.session, parent_seq=first.seq))
    assert (beside.content, beside.status) == ("Never to be finished", "interrupted")


async def test_a_session_that_is_deleted_in_mid_answer_is_answered_no_further(talk: Talk) -> None:
    provider = talk.scripted(["Never", asyncio.Event()])
    await talk.begin("Hello")
    await talk.until(lambda: Exchange.objects.exists())
    await conversation.delete(talk.user, talk.session)
    run = await talk.until_ended()
    assert (run.outcome, provider.calls[0].outcome) == (Run.Outcome.STOPPED, "closed")
    assert await in_database(lambda: Session.objects.get().hidden_at) is not None


async def test_a_run_goes_on_on_its_own_branch_when_the_head_moves_elsewhere(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted("First.", ["Second", gate], "Third.")
    await talk.begin("one")
    await talk.until_ended()
    start = await talk.head()
    await talk.send("two")
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    third = await talk.send("three", after=start, on_leaf=True)
    gate.set()
    await talk.until_ended()
    assert await talk.texts() == [("user", "one"), ("assistant", "First."), ("user", "three"), ("assistant", "Third.")]
    assert not third.is_branch
    assert await in_database(lambda: Message.objects.filter(content="Second", on_path=False).exists())


async def test_a_tool_by_hand_during_an_answer_waits_too_so_that_the_answer_stays_on_the_path(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["First", gate], "Second")
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    seen = await talk.head()
    assert (await talk.send("/current_time", after=seen)).is_queued
    assert (await talk.send("two", after=seen)).is_queued
    gate.set()
    await talk.until(lambda: Message.objects.filter(content="Second").exists())
    await talk.until_ended()
    spoken = [text for role, text in await talk.texts() if role != "tool"]
    assert spoken == ["one", "First", "/current_time", "", "two", "Second"]


async def test_what_waits_and_is_refused_goes_on_waiting_in_its_place(talk: Talk) -> None:
    await in_database(lambda: Allowance.objects.create(user=talk.user, messages_per_minute=1))
    gate = asyncio.Event()
    talk.scripted(["First", gate], "Second")
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    for text in ("two", "three"):
        assert (await talk.send(text, after=await talk.head())).is_queued
    gate.set()
    await talk.until_ended()
    await talk.until(lambda: not event_loop._tasks)  # what its end sets off is done as well
    waiting = QueuedMessage.objects.values_list("text", flat=True)
    assert await in_database(lambda: list(waiting.all())) == ["two", "three"]
    with pytest.raises(OverAllowance):
        await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    assert await in_database(lambda: list(waiting.all())) == ["two", "three"]


async def test_the_more_pages_watch_the_longer_pieces_are_gathered_and_never_for_long(talk: Talk) -> None:
    talk.scripted(["Hello", asyncio.Event()])
    await talk.begin("one")
    paces = []
    for channel in range(1_000):
        if channel in (0, 100, 999):
            paces.append(run_task._compute_interval())
        await groups.join_session(talk.session.pk, f"page-{channel}", version=1)
    for channel in range(1_000):
        await groups.leave_session(talk.session.pk, f"page-{channel}")
    assert paces == [run_task.MIN_INTERVAL, pytest.approx(101 * run_task.INTERVAL_PER_SOCKET), run_task.MAX_INTERVAL]
