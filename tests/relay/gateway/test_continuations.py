"""Clients of Responses continue by `previous_response_id`, whichever dialect the upstream speaks."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from history.access import keys
from history.db.process_state import process_state
from history.entries import ModelInput, ModelOutput
from history.models import ApiKey, Session
from history.record.selectors import snapshot
from project.accounts.models import User
from relay.digest.digester import Digester
from relay.gateway.call.calls import EarlierConversation
from relay.gateway.references import continuations, ownership
from relay.providers import registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from tests.clients import RunningRelay, send_request
from tests.vendors import Vendors, asks, raw, says
from tests.vendors.setup import endpoint_at, use_one_provider

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
OTHERS = ["anthropic-messages", "openai-chat", "gemini-generate"]


@pytest.fixture(params=OTHERS)
def upstream(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def providers(vendors: Vendors, upstream: str) -> registry.Router:
    return use_one_provider(vendors, upstream)


def digest(relay: RunningRelay, calls: int) -> None:
    relay.ended(calls)
    Digester(relay.journal.folder, name="test", end_wait=0).step()


def last_vendor_request(vendors: Vendors) -> str:
    return json.dumps(vendors.requests[-1].body)


@pytest.mark.parametrize("memory", ["kept", "lost"])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_openai_sdk_continues_several_turns_with_tools(
    relay: RunningRelay, of_openai: openai.OpenAI, vendors: Vendors, upstream: str, memory: str, is_streamed: bool
) -> None:
    turns = 0

    def respond(**fields: Any) -> Any:
        nonlocal turns
        turns += 1
        if is_streamed:
            with of_openai.responses.stream(model="model", tools=TOOLS, **fields) as stream:
                reply: Any = stream.get_final_response()
        else:
            reply = of_openai.responses.create(model="model", tools=TOOLS, **fields)
        if memory == "lost":  # another process, or a restart
            digest(relay, turns)
            process_state.reset(continuations.ContinuationMemory)
        return reply

    vendors.plays(upstream, asks(("call_1", "weather", '{"city": "Oslo"}')))
    first = respond(input="How is the weather in Oslo?")
    (call,) = [item for item in first.output if item.type == "function_call"]
    vendors.plays(upstream, says("It rains."))
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "rain, 4 degrees"}
    second = respond(input=[output], previous_response_id=first.id)
    assert second.output_text == "It rains."
    for words in ("How is the weather in Oslo?", "weather", "rain, 4 degrees"):
        assert words in last_vendor_request(vendors)
    vendors.plays(upstream, says("Then stay in."))
    third = respond(input="What shall I do?", previous_response_id=second.id)
    assert third.output_text == "Then stay in."
    for words in ("How is the weather in Oslo?", "rain, 4 degrees", "It rains.", "What shall I do?"):
        assert words in last_vendor_request(vendors)
    vendors.plays(upstream, says("Or go out."))
    again = respond(input="Something else?", previous_response_id=second.id)  # from the same place once more
    assert "Then stay in." not in last_vendor_request(vendors)
    assert again.output_text == "Or go out."


def test_continued_turns_are_one_session(
    relay: RunningRelay, of_openai: openai.OpenAI, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, says("One."))
    first = of_openai.responses.create(model="model", input="Count.")
    digest(relay, 1)
    vendors.plays(upstream, says("Two."))
    of_openai.responses.create(model="model", input="Go on.", previous_response_id=first.id)
    digest(relay, 2)
    session = Session.objects.get()
    entries = [node.entry for node in snapshot(session).nodes]
    texts = [entry.text for entry in entries if isinstance(entry, ModelInput | ModelOutput)]
    assert texts == ["Count.", "One.", "Go on.", "Two."]


@pytest.mark.usefixtures("one_process")
def test_answer_is_continued_only_by_the_key_that_was_given_it(
    relay: RunningRelay, of_openai: openai.OpenAI, vendors: Vendors, upstream: str, ada: User
) -> None:
    vendors.plays(upstream, says("Mine."))
    given = of_openai.responses.create(model="model", input="hi").id
    other = keys.create(name="other", owner=ada, recording="full").secret
    then = {"model": "model", "input": "and?", "previous_response_id": given}
    assert send_request(relay, "/v1/responses", then, authorization=f"Bearer {other}").status == 404
    assert len(vendors.requests) == 1


@pytest.mark.usefixtures("one_process")
def test_key_that_records_nothing_continues_while_the_process_remembers(
    relay: RunningRelay, of_openai: openai.OpenAI, key: str, vendors: Vendors, upstream: str
) -> None:
    ApiKey.objects.update(recording="off")
    vendors.plays(upstream, says("Secret."))
    given = of_openai.responses.create(model="model", input="hi").id
    vendors.plays(upstream, says("More."))
    then = {"model": "model", "input": "and?", "previous_response_id": given}
    assert send_request(relay, "/v1/responses", then, authorization=f"Bearer {key}").status == 200
    assert "Secret." in last_vendor_request(vendors)
    process_state.reset(continuations.ContinuationMemory)
    refused = send_request(relay, "/v1/responses", then, authorization=f"Bearer {key}")
    assert (refused.status, "Send the whole conversation" in refused.json["error"]["message"]) == (404, True)


@pytest.mark.usefixtures("one_process")
def test_answer_that_is_not_to_be_stored_is_not_continued(
    relay: RunningRelay, of_openai: openai.OpenAI, key: str, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, says("Gone."))
    given = of_openai.responses.create(model="model", input="hi", store=False).id
    then = {"model": "model", "input": "and?", "previous_response_id": given}
    assert send_request(relay, "/v1/responses", then, authorization=f"Bearer {key}").status == 404


def test_instructions_of_an_earlier_request_do_not_hold_any_more(
    relay: RunningRelay, of_openai: openai.OpenAI, vendors: Vendors, upstream: str
) -> None:
    vendors.plays(upstream, says("Arr."))
    developer: Any = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    first = of_openai.responses.create(model="model", instructions="Talk like a pirate.", input=developer)
    vendors.plays(upstream, says("Yes."))
    of_openai.responses.create(model="model", input="and?", previous_response_id=first.id)
    assert "pirate" not in last_vendor_request(vendors)
    assert "Be brief." in last_vendor_request(vendors)


@pytest.mark.parametrize("upstream", ["openai-responses"])
def test_answer_of_another_vendor_is_continued_from_the_record(
    relay: RunningRelay, of_openai: openai.OpenAI, vendors: Vendors
) -> None:
    """The first answer is kept by a vendor that is not asked the second time."""
    part = {"type": "output_text", "text": "From OpenAI.", "annotations": []}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    reply = {"id": "resp_abc123", "object": "response", "status": "completed", "model": "model", "output": [item]}
    vendors.plays("openai-responses", raw(json.dumps(reply).encode()))
    first = of_openai.responses.create(model="model", input="Who are you?")
    digest(relay, 1)
    claude = endpoint_at(vendors, "anthropic-messages", models=(Model(name="claude"),))
    process_state.set(registry.Router([HttpProvider(claude), HttpProvider(endpoint_at(vendors, "openai-responses"))]))
    vendors.plays("anthropic-messages", says("From Anthropic."))
    second = of_openai.responses.create(model="claude", input="And you?", previous_response_id=first.id)
    assert second.output_text == "From Anthropic."
    assert "From OpenAI." in last_vendor_request(vendors)
    vendors.plays("openai-responses", says("Me again."))
    third = of_openai.responses.create(model="model", input="And now?", previous_response_id=second.id)
    assert third.output_text == "Me again."
    sent = vendors.requests[-1].body
    assert "previous_response_id" not in sent
    for words in ("Who are you?", "From OpenAI.", "From Anthropic.", "And now?"):
        assert words in json.dumps(sent)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    process_state.reset(continuations.ContinuationMemory)
    monkeypatch.setattr(continuations, "MOST_BYTES", 100)
    for place in range(30):
        process_state.get(continuations.ContinuationMemory).add(
            1, f"resp_{place}", EarlierConversation(entries=(), size=10)
        )
    assert len(process_state.get(continuations.ContinuationMemory).conversations) == 10
    monkeypatch.setattr(continuations, "REMEMBERED_SECONDS", -1)
    assert process_state.get(continuations.ContinuationMemory).get(1, "resp_29") is None
    assert process_state.get(continuations.ContinuationMemory).size == 0


@pytest.mark.parametrize("upstream", OTHERS[:1])
def test_names_of_vendors_are_not_taken_for_ours(upstream: str) -> None:
    assert not continuations.is_ours("resp_68a1f0c2d3e481a0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6")
    assert not continuations.is_ours("resp_0b5c2c1e6a7f4d0e9b8a7c6d5e4f3a2b")  # version 4, as vLLM makes them
    assert not continuations.is_ours("resp_abc123")
    assert ownership.RETRY_DELAYS
