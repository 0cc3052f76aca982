"""The socket of a chat page: intents in, pieces of the page out, and nothing is missed or shown twice."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from channels.testing import WebsocketCommunicator
from django.conf import settings as live_settings
from django.test import Client
from django.utils import translation
from django.utils.translation import gettext

from history import retention
from history.answers.events import ReasoningPiece, TextPiece, ToolCallPiece
from history.db.process_state import process_state
from history.entries import ModelInput, Text
from history.models import Exchange, Message, Session
from history.record import recorder
from project.accounts.models import User
from relay import conversation
from relay.live import relayed_updates
from relay.live.run_task import RunTask
from relay.models import Agent, Run
from relay.providers import local, registry
from relay.providers.base import Model
from relay.providers.endpoints import Timeouts
from relay.providers.http import HttpProvider
from relay.providers.local_server import MODEL_NAME
from relay.routing import sockets
from relay.runtime.async_db import in_database
from tests.relay.conftest import Scripted, Talk
from tests.vendors import Vendors, refuses, says
from tests.vendors.setup import endpoint_at


class OpenPage:
    """A page that applies what it is sent as htmx would, as far as these tests look."""

    def __init__(self, socket: WebsocketCommunicator) -> None:
        self.socket, self.html = socket, ""

    async def send_json(self, kind: str, **what: Any) -> None:
        await self.socket.send_to(json.dumps({"type": kind, "HEADERS": {"HX-Request": "true"}, **what}))

    async def until(self, pattern: str) -> str:
        """What came, up to the frame in which this is found."""
        came = ""
        while not re.search(pattern, came, re.DOTALL):
            try:
                came += str(await self.socket.receive_from(timeout=10))
            except TimeoutError:
                raise AssertionError(f"{pattern} did not come, but:\n{came}") from None
        self.html += came
        return came

    async def close_code(self) -> int:
        """The code with which the server closes the socket, before it says anything else."""
        closed = await self.socket.receive_output(timeout=10)
        assert closed["type"] == "websocket.close"
        return int(closed["code"])

    async def nothing_more(self) -> bool:
        return await self.socket.receive_nothing(timeout=0.2)


def cookie_of(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[live_settings.SESSION_COOKIE_NAME].value


async def open_page(
    user: User | None, session: Session, *, origin: str = "http://localhost", query: str = ""
) -> tuple[OpenPage, bool]:
    headers = [(b"origin", origin.encode()), (b"host", b"localhost")]
    if user is not None:
        cookie = await in_database(cookie_of, user)
        headers.append((b"cookie", f"{live_settings.SESSION_COOKIE_NAME}={cookie}".encode()))
    socket = WebsocketCommunicator(sockets, f"/ws/s/{session.pk}/{query}", headers=headers)
    is_open, _ = await socket.connect(timeout=10)
    return OpenPage(socket), is_open


def empty_session(user: User) -> Session:
    return recorder.start_session(owner=user)


@pytest.fixture
async def page(talk: Talk) -> AsyncIterator[OpenPage]:
    talk.session = await in_database(empty_session, talk.user)
    found, is_open = await open_page(talk.user, talk.session)
    assert is_open
    await found.until('id="composer-after"')
    yield found
    await found.socket.disconnect(timeout=10)


async def test_a_message_and_its_answer_come_as_the_page_s_own_entries(talk: Talk, page: OpenPage) -> None:
    talk.scripted("Hello **yourself**.")
    await page.send_json("send", text="Hello <b>there</b>", after=0)
    came = await page.until("The answer is finished")
    assert "Hello &lt;b&gt;there&lt;/b&gt;" in came
    assert re.search(r'<article[^>]*class="entry answer[^"]*"[^>]*id="m\d+"', came)
    assert "<strong>yourself</strong>" in came
    assert came.count("The answer is finished") == 1


@pytest.mark.any_database
async def test_sessions_that_another_process_opened_below_appear_on_the_page(
    talk: Talk, page: OpenPage, settings: Any
) -> None:
    """As the digester does for the agents of a program, without Redis."""
    settings.REDIS_URL = ""
    called = await in_database(lambda: recorder.start_session(owner=talk.user, parent=talk.session, agent="scout"))
    await in_database(lambda: recorder.start_session(owner=talk.user, parent=called, agent="digger"))
    await in_database(relayed_updates.refresh_open_sessions)
    await page.until("2 called")
    await in_database(relayed_updates.refresh_open_sessions)
    assert await page.nothing_more()


async def test_an_answer_is_shown_while_it_is_written_block_by_block(talk: Talk, page: OpenPage) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    talk.scripted(["First *paragraph*.\n\n", "Second", gates[0], " one.", gates[1]])
    await page.send_json("send", text="Write.", after=0)
    came = await page.until("Second")
    assert '<article class="entry answer live" id="run-' in came
    assert "<em>paragraph</em>" in came
    gates[0].set()
    more = await page.until("Second one")
    assert "paragraph" not in more
    gates[1].set()
    end = await page.until("The answer is finished")
    assert re.search(r'id="run-[0-9a-f-]+" hx-swap-oob="delete"', end)


async def test_a_page_says_that_a_busy_provider_is_called_again(
    talk: Talk, page: OpenPage, vendors: Vendors, scripted: Scripted
) -> None:
    patient = endpoint_at(vendors, "openai-chat", timeouts=Timeouts())
    process_state.set(registry.Router([HttpProvider(patient)]))
    vendors.plays("openai-chat", refuses("rate_limit", headers={"retry-after": "20"}))
    await page.send_json("send", text="Hello?", after=0)
    words = r"Too many requests in a short time. The next attempt begins in \d+ seconds."
    await page.until(rf'id="run-[0-9a-f-]+-wait">{words}')
    late, _ = await open_page(talk.user, talk.session)
    await late.until(words)
    await late.socket.disconnect(timeout=10)
    await page.send_json("stop")
    await page.until("This message has no answer.")
    vendors.plays("openai-chat", says("Here I am."))
    await page.send_json("continue")
    came = await page.until("The answer is finished")
    assert "Here I am." in came
    assert "This message has no answer." not in came


async def test_a_page_that_loads_during_the_start_of_the_demo_model_says_so(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SERVER", local.LocalServer())  # another test may have started the one of this process
    gate = asyncio.Event()
    talk.scripted([gate, "Hello."], name="local", models=(Model(name=MODEL_NAME, window=4096),))
    session = await talk.begin("Anybody there?")
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    page, _ = await open_page(talk.user, session)
    await page.until("The demo model is starting.")
    gate.set()
    await page.until("The answer is finished")
    await page.socket.disconnect(timeout=10)


async def test_a_page_that_comes_in_the_middle_sees_the_text_so_far_and_then_only_what_is_new(talk: Talk) -> None:
    gate = asyncio.Event()
    talk.scripted(["one two ", gate, "three"])
    session = await talk.begin("Count.")
    first, _ = await open_page(talk.user, session)
    await first.until("one two")
    await first.socket.disconnect(timeout=10)
    second, _ = await open_page(talk.user, session)
    came = await second.until("one two")
    assert came.count("one two") == 1
    gate.set()
    end = await second.until("The answer is finished")
    assert "one two three" in end
    await second.socket.disconnect(timeout=10)


async def test_an_answer_that_is_stored_and_not_told_yet_stands_there_once(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_stored, may_tell, tell = asyncio.Event(), asyncio.Event(), RunTask.on_stored

    async def stored(run: RunTask, *, leaf: int) -> None:
        is_stored.set()
        await may_tell.wait()
        await tell(run, leaf=leaf)

    monkeypatch.setattr(RunTask, "on_stored", stored)
    talk.scripted("Once.")
    session = await talk.begin("Say it.")
    await is_stored.wait()
    page, _ = await open_page(talk.user, session)
    came = await page.until("Once.")
    may_tell.set()
    came += await page.until("The answer is finished")
    assert "entry answer live" not in came
    await page.socket.disconnect(timeout=10)


async def test_closing_every_tab_changes_nothing(talk: Talk, page: OpenPage) -> None:
    gate = asyncio.Event()
    talk.scripted(["A long ", gate, "answer."])
    await page.send_json("send", text="Write.", after=0)
    await page.until("A long")
    await page.socket.disconnect(timeout=10)
    gate.set()
    await talk.until_ended()
    assert (await talk.texts())[-1] == ("assistant", "A long answer.")


async def test_two_pages_of_one_session_show_the_same(talk: Talk, page: OpenPage) -> None:
    talk.scripted("Hello both.")
    other, _ = await open_page(talk.user, talk.session)
    await page.send_json("send", text="Anybody?", after=0)
    for each in (page, other):
        came = await each.until("The answer is finished")
        assert "Anybody?" in came
        assert "Hello both." in came
    await other.socket.disconnect(timeout=10)


async def test_a_call_is_a_card_first_without_and_then_with_its_result(talk: Talk, page: OpenPage) -> None:
    await talk.agent(tools=["current_time"])
    call = ToolCallPiece(part="c", call_id="c", name="current_time", arguments="{}")
    talk.scripted([ReasoningPiece(part="r", text="Look at the clock."), call], [TextPiece(part="t", text="Noon.")])
    await page.send_json("send", text="How late?", after=0)
    came = await page.until("The answer is finished")
    assert "Look at the clock." in came
    cards = re.findall(r'<details class="tool"[^>]*>.*?</details>', came, re.DOTALL)
    assert "current_time" in cards[-1]
    assert "success" in cards[-1]
    assert "Noon." in came


async def test_stop_keeps_what_there_was_and_the_page_says_so(talk: Talk, page: OpenPage) -> None:
    talk.scripted(["The beginning", asyncio.Event()])
    await page.send_json("send", text="Tell me.", after=0)
    await page.until("The beginning")
    run = await in_database(Run.objects.get)
    await page.send_json("stop", run=str(run.pk))
    came = await page.until("The answer was stopped")
    assert "The beginning" in came
    assert "interrupted" in came


async def test_who_comes_second_is_told_and_sees_a_branch_of_their_own(talk: Talk, page: OpenPage) -> None:
    talk.scripted("Hello.", lambda context, options: f"You said {context.entries[-1].content}.")
    await page.send_json("send", text="Hello", after=0)
    await page.until("The answer is finished")
    seen = await talk.head()
    other, _ = await open_page(talk.user, talk.session, query=f"?shown={seen}")
    gate = asyncio.Event()
    talk.scripted(lambda context, options: [f"You said {context.entries[-1].content}.", gate])
    await page.send_json("send", text="one", after=seen)
    await page.until("You said one")
    await other.send_json("send", text="two", after=seen)
    came = await other.until("You said two")
    assert "Your message is on its own branch." in came
    gate.set()
    came = await other.until("The answer is finished")
    assert re.search(r'<article class="entry answer" id="m\d+".*You said two', came, re.DOTALL)
    await other.socket.disconnect(timeout=10)


async def test_a_page_that_was_away_gets_what_it_missed_and_nothing_twice(talk: Talk, page: OpenPage) -> None:
    talk.scripted("One.", "Two.")
    await page.send_json("send", text="first", after=0)
    await page.until("The answer is finished")
    shown = await talk.head()
    await page.socket.disconnect(timeout=10)
    await talk.send("second")
    await talk.until_ended()
    back, _ = await open_page(talk.user, talk.session, query=f"?shown={shown}")
    came = await back.until('id="composer-after"')
    assert "second" in came
    assert "Two." in came
    assert "<p>first</p>" not in came  # it is the title, too
    await back.socket.disconnect(timeout=10)


async def test_going_back_shows_the_conversation_as_it_is_now(talk: Talk, page: OpenPage) -> None:
    talk.scripted("One.", "Two.")
    await page.send_json("send", text="first", after=0)
    await page.until("The answer is finished")
    back = await talk.head()
    await page.send_json("send", text="second", after=back)
    await page.until("The answer is finished")
    await page.send_json("rollback", to=back)
    came = await page.until('id="transcript"')
    assert "One." in came
    assert "Two." not in came


async def test_commands_answer_without_a_model(talk: Talk, page: OpenPage) -> None:
    provider = talk.scripted("never")
    await page.send_json("send", text="/help", after=0)
    assert "/rollback" in await page.until('id="notices"')
    await page.send_json("send", text="/sys_monitor cpu", after=0)
    assert "CPU" in await page.until("CPU")
    await page.send_json("send", text="/histroy", after=0)
    assert "/history" in await page.until("Did you mean")
    await page.send_json("send", text="/fork", after=0)
    assert re.search(r'<a id="go" href="/s/[0-9a-f-]+/"', await page.until('id="go"'))
    assert provider.calls == []


@pytest.mark.parametrize("rubbish", ["{", "[]", '{"type": 1}', '{"type": "fly"}', '{"type": "send", "text": ["x"]}'])
async def test_what_makes_no_sense_gets_a_notice_and_the_socket_lives_on(page: OpenPage, rubbish: str) -> None:
    await page.socket.send_to(rubbish)
    assert "error" in await page.until('id="notices"')
    await page.send_json("ping")
    await page.until('id="pong"')


async def test_an_error_of_a_database_thread_is_in_the_language_of_the_user(talk: Talk) -> None:
    talk.user.language = "zh-hans"
    await in_database(talk.user.save)
    talk.session = await in_database(empty_session, talk.user)
    page, _ = await open_page(talk.user, talk.session)
    talk.scripted("Hello.")
    await page.send_json("send", text="Hello", after=0)
    await talk.until_ended()
    await page.send_json("edit", seq=await talk.head(), text="Hello again")
    with translation.override("zh-hans"):
        refused = gettext("Only messages of users can be edited.")
    assert refused != "Only messages of users can be edited."
    await page.until(refused)
    await page.socket.disconnect(timeout=10)


async def test_the_selected_agent_answers_that_message(talk: Talk, page: OpenPage) -> None:
    provider = talk.scripted("As you like.", models=[Model(name="one"), Model(name="two")])
    await talk.agent(instruction="Be brief.", model="scripted/one")
    await in_database(lambda: Agent.objects.create(name="poet", instruction="In verse.", model="scripted/one"))
    await page.send_json("send", text="Hello", after=0)
    await page.until("The answer is finished")
    head = await talk.head()
    await page.send_json("send", text="And now?", after=head, agent="poet", model="scripted/two")
    await page.until("The answer is finished")
    asked = [(call.options.model, call.context.system) for call in provider.calls]
    assert asked == [("one", "Be brief."), ("two", "In verse.")]


async def test_only_the_owner_from_our_own_pages_gets_in(talk: Talk, bob: User, staff: User) -> None:
    talk.session = await in_database(empty_session, talk.user)
    for user, code in ((None, 4401), (bob, 4404), (staff, 4404)):
        page, _ = await open_page(user, talk.session)
        assert await page.close_code() == code
    _, is_open = await open_page(talk.user, talk.session, origin="http://evil.example")
    assert not is_open


async def test_a_session_that_was_deleted_takes_no_message(talk: Talk, page: OpenPage) -> None:
    talk.scripted("never")
    await in_database(retention.hide, talk.session, actor=talk.user)
    await page.send_json("send", text="Still here?", after=0)
    closed = await page.socket.receive_output(timeout=10)
    assert closed == {"type": "websocket.close", "code": 4404}


async def test_ten_megabytes_of_a_result_are_a_short_piece_of_the_page(talk: Talk, page: OpenPage) -> None:
    long = ModelInput(parts=(Text(text="x" * 10_000_000),))
    await in_database(recorder.append, talk.session, long, after=0)
    await conversation.rename(talk.session, title="long")
    came = await page.until('id="m1"')
    assert len(came) < 100_000
    assert await in_database(lambda: Message.objects.get(seq=1).content_chars) == 10_000_000


@contextmanager
def longest_step() -> Iterator[list[float]]:
    """CPU time of the longest step of the event loop: for so long it answered no one else."""
    longest, run = [0.0], asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begin = time.thread_time()
        run(handle)
        longest[0] = max(longest[0], time.thread_time() - begin)

    with patch.object(asyncio.Handle, "_run", timed):
        yield longest


@pytest.mark.parametrize(
    "item",
    [
        "A paragraph of **strong** words.\n\n",
        "- an item with **strong** words, `code` and [a link](https://a.example)\n",
    ],
    ids=["paragraphs", "one list"],
)
async def test_a_long_answer_holds_the_loop_no_longer_than_a_short_one(talk: Talk, page: OpenPage, item: str) -> None:
    steps: dict[int, float] = {}
    for chars in (10_000, 200_000) * 2:
        text = item * (chars // len(item))
        talk.scripted([text[place : place + 2_000] for place in range(0, len(text), 2_000)])
        with longest_step() as longest:
            await page.send_json("send", text="Write.", after=await in_database(head_of, talk.session))
            await page.until("The answer is finished")
        steps[chars] = min(longest[0], steps.get(chars, 1.0))
    # Put together on the loop, 6,000 paragraphs took 30 ms at once. Below a millisecond the clock says little.
    assert steps[200_000] <= 5 * max(steps[10_000], 0.001)


def head_of(session: Session) -> int:
    return Session.objects.values_list("head", flat=True).get(pk=session.pk)
