"""The queue of messages: its order, what holds it, and that no message is lost on its way out of it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from history.access import keys
from history.models import Exchange, Message, Session
from relay import conversation
from relay.errors import NoSuchAgent
from relay.live import groups, lost_runs
from relay.models import Agent, QueuedMessage, Run
from relay.runtime import event_loop, process_locks
from relay.runtime.async_db import in_database
from relay.tools import built_in
from relay.tools.base import all_tools
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import open_page
from tests.relay.consumers.test_program_socket import Program, connect
from tests.relay.conversation.outages import database_away

REFUSE_ENTRIES = {
    "sqlite": ["CREATE TRIGGER refuse BEFORE INSERT ON history_message BEGIN SELECT RAISE(ABORT, 'refused'); END"],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER refuse BEFORE INSERT ON history_message FOR EACH ROW EXECUTE FUNCTION refuse()",
    ],
}
TAKE_ENTRIES = {
    "sqlite": ["DROP TRIGGER refuse"],
    "postgresql": ["DROP TRIGGER refuse ON history_message", "DROP FUNCTION refuse()"],
}


def run_sql(statements: list[str]) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def slow_tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The tool `slow`: has `begun`, and goes on until it `ends`."""
    folder = str(Path(__file__).parents[2] / "servers" / "tools")
    monkeypatch.setattr(built_in, "__path__", [*built_in.__path__, folder])
    all_tools.cache_clear()
    module = import_module(f"{built_in.__name__}.slow")
    module.gates.append(module.Gate())
    yield module.gates[-1]
    monkeypatch.undo()
    all_tools.cache_clear()


async def waiting() -> list[str]:
    return await in_database(lambda: list(QueuedMessage.objects.values_list("text", flat=True)))


async def until_quiet(talk: Talk) -> Run:
    run = await talk.until_ended()
    await talk.until(lambda: not event_loop._tasks)
    return run


async def stop_first_answer(talk: Talk, *texts: str) -> None:
    """“one” is being answered, these wait, and the answer is stopped."""
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    for text in texts:
        assert (await talk.send(text)).is_queued
    await asyncio.sleep(0.05)
    await talk.stop()
    await until_quiet(talk)


@pytest.mark.parametrize("text", ["two", "/current_time"])
async def test_a_queued_message_survives_a_failed_append(talk: Talk, text: str) -> None:
    talk.scripted(["First", asyncio.Event()], "Second")
    await stop_first_answer(talk, text)
    seen = await talk.head()
    # What a crash in the middle leaves behind is what a rollback leaves behind.
    await in_database(lambda: run_sql(REFUSE_ENTRIES[connection.vendor]))
    with pytest.raises(DatabaseError, match="refused"):
        await conversation.send_queued(talk.user, talk.session, after=seen)
    await in_database(lambda: run_sql(TAKE_ENTRIES[connection.vendor]))
    assert await waiting() == [text]
    await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    await until_quiet(talk)
    assert await waiting() == []
    assert [said for role, said in await talk.texts() if role == "user"].count(text) == 1


async def test_a_message_after_a_stop_goes_behind_what_waits(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()], lambda context, options: f"You said {context.entries[-1].content}.")
    await stop_first_answer(talk, "two")
    sent = await talk.send("three")
    assert sent.is_queued
    await talk.until(lambda: Message.objects.filter(content="You said three.").exists())
    await until_quiet(talk)
    assert (await talk.texts())[2:] == [
        ("user", "two"), ("assistant", "You said two."), ("user", "three"), ("assistant", "You said three."),
    ]  # fmt: skip
    assert await waiting() == []


async def test_after_a_stop_nothing_that_waits_is_sent_by_itself(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()], " and more.", "never")
    await stop_first_answer(talk, "two")
    await conversation.continue_(talk.user, talk.session)
    await until_quiet(talk)
    assert (await talk.texts())[-1] == ("assistant", " and more.")
    assert await waiting() == ["two"]


async def test_what_waits_on_another_branch_is_not_sent_here(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()], lambda context, options: f"You said {context.entries[-1].content}.")
    await stop_first_answer(talk, "two")
    first = next(message for message in await talk.messages() if message.content == "one")
    await conversation.edit(talk.user, talk.session, seq=first.seq, draft=conversation.MessageDraft(text="uno"))
    await until_quiet(talk)
    assert not (await talk.send("tres")).is_queued
    await until_quiet(talk)
    assert [text for _, text in await talk.texts()] == ["uno", "You said uno.", "tres", "You said tres."]
    assert await waiting() == ["two"]
    # Its owner may still send it: it continues what is on the screen.
    await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    await until_quiet(talk)
    assert [text for _, text in await talk.texts()][4:] == ["two", "You said two."]


async def test_a_message_that_arrives_as_the_answer_ends_is_never_stranded(talk: Talk) -> None:
    """Many at once: each is queued before the end and sent by it, or finds the run ended."""
    for _ in range(5):
        gate = asyncio.Event()
        talk.scripted(["First", gate], "Second")
        await talk.begin("one")
        await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
        seen, run = await talk.head(), (await in_database(lambda: Run.objects.get(ended_at=None))).pk
        gate.set()
        await talk.send("two", after=seen, run=run)
        await until_quiet(talk)
        assert [text for _, text in await talk.texts()] == ["one", "First", "two", "Second"]
        assert await waiting() == []


async def test_the_page_offers_to_send_or_drop_after_a_stop(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()], "Second")
    await talk.begin("one")
    page, _ = await open_page(talk.user, talk.session)
    await page.until("First")
    await talk.send("two")
    await talk.send("three")
    came = await page.until("three")
    assert "Waiting to be sent" in came
    assert 'id="queue-send"' not in came
    await talk.stop()
    came = await page.until('id="queue-send".*id="queue-drop"')
    dropped = await in_database(lambda: QueuedMessage.objects.get(text="three").pk)
    await page.send_json("unqueue", id=str(dropped))
    await page.until("two")
    await page.send_json("send_queued")
    await page.until("The answer is finished")
    assert (await talk.texts())[2:] == [("user", "two"), ("assistant", "Second")]
    await page.socket.disconnect(timeout=10)


async def test_the_page_drops_all_that_waits(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()])
    await stop_first_answer(talk, "two", "three")
    page, _ = await open_page(talk.user, talk.session)
    await page.until('id="queue-drop"')
    await page.send_json("unqueue")
    await talk.until(lambda: not QueuedMessage.objects.exists())
    await page.socket.disconnect(timeout=10)


@pytest.fixture
async def program(talk: Talk) -> AsyncIterator[Program]:
    key = await in_database(_key, talk)
    found, _ = await connect(key)
    yield found
    await found.socket.disconnect(timeout=10)


def _key(talk: Talk) -> str:
    made: Any = keys.create(name="p", owner=talk.user, scopes=["read", "write"], recording="full", owner_wide=True)
    return str(made.secret)


async def test_a_program_lists_sends_and_withdraws_what_waits(talk: Talk, program: Program) -> None:
    talk.scripted(["First", asyncio.Event()], "Second")
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    await program.request("open", session=str(talk.session.pk))
    ids = []
    for text in ("two", "three"):
        frame = await program.request("send", text=text)
        assert frame["is_queued"]
        ids.append(frame["queued"])
    frame = await program.request("queue")
    assert [(one["queued"], one["text"], one["is_held"]) for one in frame["queued"]] == [
        (ids[0], "two", False),
        (ids[1], "three", False),
    ]
    await program.request("stop")
    await until_quiet(talk)
    assert all(one["is_held"] for one in (await program.request("queue"))["queued"])
    assert (await program.request("unqueue", queued=ids[1]))["withdrawn"] == 1
    frame = await program.request("send_queued")
    assert frame["run"]
    await until_quiet(talk)
    assert (await talk.texts())[-2:] == [("user", "two"), ("assistant", "Second")]
    assert (await program.request("queue"))["queued"] == []


async def test_a_stranger_sees_and_changes_no_queue(talk: Talk, bob: Any) -> None:
    talk.scripted(["First", asyncio.Event()])
    await stop_first_answer(talk, "two")
    made = await in_database(
        lambda: keys.create(name="b", owner=bob, scopes=["read", "write"], recording="full", owner_wide=True)
    )
    program, _ = await connect(made.secret)
    for command in ("queue", "send_queued", "unqueue"):
        frame = await program.request(command, session=str(talk.session.pk))
        assert (frame["type"], frame["code"]) == ("error", "no_such_session")
    assert await waiting() == ["two"]
    await program.socket.disconnect(timeout=10)


async def test_sending_the_queue_twice_keeps_one_conversation(talk: Talk) -> None:
    """Two tabs, or an impatient user: the second finds the first message being answered, or answered."""
    gate = asyncio.Event()
    talk.scripted(["First", asyncio.Event()], ["Second", gate], "Third")
    await stop_first_answer(talk, "two", "three")
    seen = await talk.head()
    await conversation.send_queued(talk.user, talk.session, after=seen)
    await conversation.send_queued(talk.user, talk.session, after=seen)
    gate.set()
    await talk.until(lambda: Message.objects.filter(content="Third").exists())
    await until_quiet(talk)
    assert [text for _, text in await talk.texts()][2:] == ["two", "Second", "three", "Third"]


async def test_messages_of_a_page_that_saw_the_queue_go_behind_it(talk: Talk) -> None:
    """The page showed the stopped answer and “two” in the queue; “two” is sent while its messages are on their way."""
    gate = asyncio.Event()
    talk.scripted(["First", asyncio.Event()], ["Second", gate], "Third", "Fourth")
    await stop_first_answer(talk, "two")
    seen = await talk.head()
    await conversation.send_queued(talk.user, talk.session, after=seen)
    await talk.send("three", after=seen)
    await talk.send("four", after=seen)
    gate.set()
    await talk.until(lambda: Message.objects.filter(content="Fourth").exists())
    await until_quiet(talk)
    assert [text for _, text in await talk.texts()][2:] == ["two", "Second", "three", "Third", "four", "Fourth"]


async def test_two_messages_at_once_behind_a_held_queue_keep_its_order(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()], lambda context, options: f"You said {context.entries[-1].content}.")
    await stop_first_answer(talk, "two")
    seen = await talk.head()
    await asyncio.gather(talk.send("three", after=seen), talk.send("four", after=seen))
    await talk.until(lambda: Message.objects.filter(content__startswith="You said").count() == 3)
    await until_quiet(talk)
    texts = [text for role, text in await talk.texts() if role == "user"]
    assert texts[:2] == ["one", "two"]
    assert sorted(texts[2:]) == ["four", "three"]
    assert await waiting() == []


async def test_a_refused_message_is_held_alone_and_those_behind_it_are_sent(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["First", gate], lambda context, options: f"You said {context.entries[-1].content}.")
    await in_database(lambda: Agent.objects.create(name="helper"))
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    await talk.send("two", agent="helper")
    await talk.send("three")
    await in_database(lambda: Agent.objects.filter(name="helper").delete())
    gate.set()
    await talk.until(lambda: Message.objects.filter(content="You said three.").exists())
    await until_quiet(talk)
    [row] = await in_database(lambda: list(QueuedMessage.objects.all()))
    assert (row.text, row.error) == ("two", "NoSuchAgent")
    # It stays aside, with the reason, and the conversation goes on.
    assert not (await talk.send("four")).is_queued
    await until_quiet(talk)
    assert [text for _, text in await talk.texts()][2:] == ["three", "You said three.", "four", "You said four."]
    page, _ = await open_page(talk.user, talk.session)
    await in_database(lambda: groups.notify_session(talk.session.pk))
    await page.until("Its agent no longer exists.")
    with pytest.raises(NoSuchAgent):
        await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    await in_database(lambda: Agent.objects.create(name="helper"))
    await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    await until_quiet(talk)
    assert (await talk.texts())[-1] == ("assistant", "You said two.")
    assert await waiting() == []


async def test_each_refused_message_is_held_with_its_own_reason(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["First", gate])
    await in_database(lambda: Agent.objects.create(name="helper"))
    await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    await talk.send("two", agent="helper")
    await talk.send("three")
    await in_database(lambda: Agent.objects.filter(name="helper").delete())
    await in_database(lambda: QueuedMessage.objects.filter(text="three").update(model="gone/model"))
    gate.set()
    await talk.until(lambda: not QueuedMessage.objects.filter(held_at=None).exists())
    errors = await in_database(lambda: dict(QueuedMessage.objects.values_list("text", "error")))
    assert errors == {"two": "NoSuchAgent", "three": "NoSuchModel"}


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_typed_tool_command_is_a_row_while_it_runs(talk: Talk, slow_tool: Any, is_first: bool) -> None:
    """What a process leaves behind that dies in the middle, and what its successor makes of it."""
    talk.scripted("First", "Second")
    if not is_first:
        await talk.begin("one")
        await until_quiet(talk)
        typed: asyncio.Task[Any] = asyncio.create_task(talk.send("/slow"))
    else:
        typed = asyncio.create_task(talk.begin("/slow"))
    await slow_tool.begun.wait()
    row = await in_database(lambda: QueuedMessage.objects.get())
    talk.session = await in_database(lambda: Session.objects.get(pk=row.session_id))
    assert (row.text, row.process) == ("/slow", process_locks.name_here())
    # Another message does not overtake it.
    assert (await talk.send("two")).is_queued
    assert "two" not in [text for _, text in await talk.texts()]
    slow_tool.ends.set()
    await typed
    await until_quiet(talk)
    assert [text for role, text in await talk.texts() if role == "user"][-2:] == ["/slow", "two"]
    assert await waiting() == []


async def test_a_tool_command_of_a_dead_process_is_not_carried_out_again(talk: Talk) -> None:
    talk.scripted("First", lambda context, options: f"You said {context.entries[-1].content}.")
    await talk.begin("one")
    await until_quiet(talk)

    def leave() -> None:
        """The file and the row of a process that was killed in the middle."""
        process_locks.own_file.folder.mkdir(parents=True, exist_ok=True)
        here = {"host": socket.gethostname(), "boot": process_locks._boot_id()}
        (process_locks.own_file.folder / "gone").write_text(json.dumps(here))
        values = {"session": talk.session, "owner": talk.user, "text": "/current_time", "process": "gone"}
        QueuedMessage.objects.create(**values, claimed_at=timezone.now(), after=Session.objects.get().head)

    await in_database(leave)
    page, _ = await open_page(talk.user, talk.session)
    await in_database(lost_runs.end_runs_of_dead_processes)
    await page.until("The server stopped before it finished.")
    assert not (await talk.send("two")).is_queued
    await until_quiet(talk)
    assert (await talk.texts())[-1] == ("assistant", "You said two.")
    assert await waiting() == ["/current_time"]
    await conversation.send_queued(talk.user, talk.session, after=await talk.head())
    assert await waiting() == []
    assert ("user", "/current_time") in await talk.texts()


async def test_a_typed_tool_command_is_recorded_after_an_outage(talk: Talk, slow_tool: Any) -> None:
    talk.scripted("First")
    await talk.begin("one")
    await until_quiet(talk)
    typed = asyncio.create_task(talk.send("/slow"))
    await slow_tool.begun.wait()
    async with database_away(0):
        slow_tool.ends.set()
        await asyncio.sleep(0.5)
        assert not typed.done()
    assert (await typed).seq
    assert [text for role, text in await talk.texts() if role == "user"] == ["one", "/slow"]
    assert await waiting() == []
