"""The whole way: a vendor's SDK, the relay, a played vendor, the journal, and what of it is in the history."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from history.access import keys
from history.models import Exchange, Session, ToolCall
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.providers import registry
from relay.usage.prices import Price
from tests.clients import HI_BODY, RunningRelay, open_reply, send_request
from tests.relay.digest.relayed import database_away, path_of, sessions
from tests.servers.databases import close_connections
from tests.vendors import Vendors, asks, refuses, says
from tests.vendors.setup import use_one_provider

if TYPE_CHECKING:
    import anthropic
    from google import genai
    from openai import OpenAI

CALL = ("call_1", "weather", '{"city": "Oslo"}')
TOOLS: Any = [{"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}]


@pytest.fixture(params=["anthropic-messages", "openai-chat", "gemini-generate"])
def upstream(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def providers(vendors: Vendors, upstream: str) -> registry.Router:
    return use_one_provider(vendors, upstream)


def digest(relay: RunningRelay, *, ends: int) -> None:
    relay.ended(ends)
    digester = Digester(relay.journal.folder, name="test", end_wait=0)
    for _ in range(4):
        digester.step()


def test_a_conversation_with_a_tool_is_one_session_in_either_language(
    of_anthropic: anthropic.Anthropic, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    talk: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    vendors.plays(upstream, asks(CALL, text="Let me look."))
    asked: Any = of_anthropic.messages.create(model="model", max_tokens=99, messages=talk, tools=TOOLS)
    call = asked.content[-1]
    talk += [
        {"role": "assistant", "content": asked.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}]},
    ]
    vendors.plays(upstream, says("It ", "rains", "."))
    with of_anthropic.messages.stream(model="model", max_tokens=99, messages=talk, tools=TOOLS) as stream:
        assert "".join(stream.text_stream) == "It rains."
    talk += [{"role": "assistant", "content": "It rains."}, {"role": "user", "content": "Thanks."}]
    of_anthropic.messages.create(model="model", max_tokens=99, messages=talk, tools=TOOLS)
    digest(relay, ends=3)
    (session,) = sessions()
    assert path_of(session) == [
        "u:What is the weather in Oslo?",
        "a:Let me look.",
        "t:Rain.",
        "a:It rains.",
        "u:Thanks.",
        "a:Hello.",
    ]
    assert (ToolCall.objects.get().status, session.client) == ("success", "Anthropic SDK")
    assert session.input_tokens == 36


@pytest.mark.parametrize("upstream", ["anthropic-messages", "openai-chat"], indirect=True)
def test_a_chat_streamed_by_googles_sdk_is_stored_once(
    of_google: genai.Client, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    chat = of_google.chats.create(model="model")
    for number in range(3):
        vendors.plays(upstream, says("It ", "rains", f" {number}."))
        assert "".join(chunk.text or "" for chunk in chat.send_message_stream(f"Question {number}"))
    assert len(chat.get_history()) > 6
    digest(relay, ends=3)
    (session,) = sessions()
    told = [[f"u:Question {number}", f"a:It rains {number}."] for number in range(3)]
    assert path_of(session) == [line for lines in told for line in lines]
    assert session.version == session.message_count == 6


def test_what_the_sdk_tries_again_is_one_exchange(
    of_anthropic: anthropic.Anthropic, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, refuses("overloaded", headers={"retry-after-ms": "10"}))
    client = of_anthropic.with_options(max_retries=2)
    client.messages.create(model="model", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    digest(relay, ends=2)
    assert Exchange.objects.get().attempts == 2
    assert path_of(sessions()[0]) == ["u:hi", "a:Hello."]


def test_the_cost_of_a_call_is_on_its_exchange_and_its_session(relay: RunningRelay, ada: User, settings: Any) -> None:
    settings.PARLEY_PRICES = (Price(model="mod*", input=Decimal(1_000_000), output=Decimal(2_000_000)),)
    for limit in (None, 1_000):
        made = keys.create(name="priced", owner=ada, recording="full", tokens_per_day=limit)
        send_request(relay, "/v1/messages", {**HI_BODY, "max_tokens": 9}, x_api_key=made.secret)
    digest(relay, ends=2)
    costs = set(Exchange.objects.values_list("cost", flat=True))
    assert len(costs) == 1
    assert costs == set(Session.objects.values_list("cost", flat=True))
    assert min(costs) > 0


@pytest.mark.parametrize("upstream", ["anthropic-messages"], indirect=True)
def test_the_session_that_the_client_was_told_is_the_session_in_the_history(relay: RunningRelay, key: str) -> None:
    told = send_request(relay, "/v1/messages", HI_BODY, x_api_key=key, x_claude_code_session_id="abc")
    digest(relay, ends=1)
    row = Exchange.objects.get(pk=told.headers["x-parley-exchange-id"])
    assert str(row.session_id) == told.headers["x-parley-session-id"]
    assert Session.objects.get().recognised_by == "client id"


@pytest.mark.parametrize("upstream", ["openai-chat"], indirect=True)
def test_a_client_that_leaves_in_the_middle_leaves_half_an_answer(
    of_openai: OpenAI, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, replace(says(*[f"{number} " for number in range(50)]), delay=0.02))
    stream = of_openai.chat.completions.create(
        model="model", messages=[{"role": "user", "content": "Count."}], stream=True
    )
    for number, _chunk in enumerate(stream):
        if number == 5:
            break
    stream.close()
    digest(relay, ends=1)
    row = Exchange.objects.get()
    assert row.message is not None
    assert row.message.content.startswith("0 1 2")
    assert row.end_reason in ("client_gone", "done")


WORDS = tuple(f"{number} " for number in range(6))
ASKED = json.dumps({**HI_BODY, "stream": True}).encode()


@pytest.mark.parametrize("upstream", ["openai-chat"], indirect=True)
def test_the_client_may_leave_after_any_piece(relay: RunningRelay, key: str, vendors: Vendors, upstream: str) -> None:
    read: dict[str, bytes] = {}
    for pieces in range(len(WORDS) + 1):
        vendors.plays(upstream, replace(says(*WORDS), delay=0.02, linger=0.2))
        with open_reply(relay, "/v1/chat/completions", ASKED, headers={"x-api-key": key}) as answered:
            lines = [answered.response.readline() for _ in range(2 * pieces)]
        read[answered.headers["x-parley-exchange-id"]] = b"".join(lines)
        relay.ended(len(read))
    digest(relay, ends=len(read))
    assert Exchange.objects.count() == len(read)
    for row in Exchange.objects.select_related("message"):
        kept = row.message.content if row.message else ""
        assert row.end_reason == "client_gone"
        assert "".join(WORDS).startswith(kept)
        heard = "".join(re.findall(r'"content": ?"([^"]*)"', read[str(row.pk)].decode()))
        assert kept.startswith(heard.strip()), "what the client heard is in the record"


@pytest.mark.parametrize("upstream", ["openai-chat"], indirect=True)
def test_the_upstream_may_break_off_after_any_byte(
    relay: RunningRelay, key: str, vendors: Vendors, upstream: str
) -> None:
    places = [*range(1, 1_200, 90)]
    for place in places:
        vendors.plays(upstream, replace(says(*WORDS), cut_at=place))
        with open_reply(relay, "/v1/chat/completions", ASKED, headers={"x-api-key": key}) as answered:
            answered.read()
            assert answered.is_cut
    digest(relay, ends=len(places))
    rows = list(Exchange.objects.select_related("message"))
    assert [row.end_reason for row in rows] == ["upstream_cut"] * len(places)
    assert all("".join(WORDS).startswith(row.message.content) for row in rows if row.message)
    assert len({row.message.content for row in rows if row.message}) > 3


@pytest.mark.parametrize("upstream", ["openai-chat"], indirect=True)
def test_without_the_database_clients_are_answered_and_recorded_later(
    of_openai: OpenAI, relay: RunningRelay, vendors: Vendors, upstream: str
) -> None:
    talk: list[Any] = []
    for number in range(4):
        talk.append({"role": "user", "content": f"Question {number}"})
        vendors.plays(upstream, says(f"Answer {number}"))
        if number == 0:
            reply = of_openai.chat.completions.create(model="model", messages=talk)
        else:
            close_connections()
            with database_away():
                reply = of_openai.chat.completions.create(model="model", messages=talk)
        assert reply.choices[0].message.content == f"Answer {number}"
        talk.append({"role": "assistant", "content": f"Answer {number}"})
    digest(relay, ends=4)
    (session,) = sessions()
    assert len(path_of(session)) == 8
    assert path_of(session)[-1] == "a:Answer 3"
