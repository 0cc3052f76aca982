"""Where a model's name leads: rules, aliases, weights; the next one when one fails before the first byte."""

import json
from collections import Counter
from typing import Any

import openai
import pytest

from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.models import Exchange
from relay.digest.digester import Digester
from relay.gateway import routes
from relay.gateway.references import ownership
from relay.gateway.routes import upstreams_for
from relay.providers import registry
from relay.providers.base import Model, Rule, Target
from relay.providers.endpoints import Timeouts
from relay.providers.http import HttpProvider
from tests.clients import HI_BODY, RunningRelay, send_request
from tests.servers.processes import wait_for
from tests.vendors import Vendors, raw, refuses, says
from tests.vendors.setup import endpoint_at

# What passes through on the wire is the same on every database; tests/digest shows what is stored of it.
pytestmark = pytest.mark.any_database

CHAT = "openai-chat"


@pytest.fixture
def providers(vendors: Vendors) -> registry.Router:
    """Two that speak like OpenAI, of which the second knows its model by another name; one without a server."""
    alike = [HttpProvider(endpoint_at(vendors, CHAT, name=name)) for name in ("first", "second")]
    unreachable = endpoint_at(
        vendors, CHAT, name="unreachable", base_url="http://127.0.0.1:1/v1", timeouts=Timeouts(connect=1)
    )
    others = [HttpProvider(endpoint_at(vendors, "anthropic-messages", models=(Model(name="claude"),)))]
    router = registry.Router([*alike, HttpProvider(unreachable), *others])
    process_state.set(router)
    return router


@pytest.fixture(autouse=True)
def _cool_again() -> None:
    process_state.reset(routes.Cooldowns)


def lead(settings: Any, model: str, *targets: Target) -> None:
    settings.PARLEY_ROUTES = (Rule(model=model, targets=targets),)


def to(provider: str, model: str = "model", weight: float = 1.0) -> Target:
    return Target(provider=provider, model=model, weight=weight)


def order(model: str, affinity: bytes = b"") -> list[str]:
    return [upstream.provider.name for upstream in upstreams_for(model, dialect=CHAT, affinity=lambda: affinity)]


def test_an_alias_is_replaced_by_the_models_own_name_and_nothing_else_is(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "fast*", to("second", "model"))
    body = b'{ "model" : "fast-2", "messages":[{"role":"user","content":"\xe5\x97\xa8"}] }'
    assert send_request(relay, "/v1/chat/completions", body, x_api_key=key).status == 200
    assert vendors.requests[0].body == {"model": "model", "messages": [{"role": "user", "content": "嗨"}]}
    assert vendors.requests[0].headers["content-length"] == str(len(body) - 1)
    assert (relay.accepted()[0].provider, relay.accepted()[0].model) == ("second", "model")
    assert relay.accepted()[0].body == body


def test_a_model_named_with_its_provider_is_called_by_its_own_name(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    assert (
        send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "second/model"}, x_api_key=key).status == 200
    )
    assert vendors.requests[0].body["model"] == "model"


def test_of_several_with_one_name_the_one_that_speaks_the_callers_language_is_asked(
    relay: RunningRelay, key: str, vendors: Vendors
) -> None:
    providers_of_all = [HttpProvider(endpoint_at(vendors, dialect)) for dialect in DIALECTS]
    process_state.set(registry.Router(providers_of_all))
    assert send_request(relay, "/v1/messages", HI_BODY, x_api_key=key, anthropic_version="2023-06-01").status == 200
    assert vendors.requests[0].dialect == "anthropic-messages"


def test_weights_share_sessions_out_and_each_stays_where_it_is(
    db: None, providers: registry.Router, settings: Any
) -> None:
    lead(settings, "both", to("first", weight=3), to("second", weight=1), to("unreachable", weight=0))
    firsts = Counter(order("both", affinity=str(number).encode())[0] for number in range(2_000))
    assert 1_400 < firsts["first"] < 1_600
    assert firsts["unreachable"] == 0
    assert all(order("both", affinity=b"a") == order("both", affinity=b"a") for _ in range(3))
    assert order("both")[-1] == "unreachable"


def test_the_next_one_is_asked_when_one_fails_before_the_first_byte(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "both", to("unreachable"), to("first", weight=0))
    vendors.plays(CHAT, says("Here."))
    answered = send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "both"}, x_api_key=key)
    assert answered.json["choices"][0]["message"]["content"] == "Here."
    ended = relay.ended()[0]
    assert [(attempt.provider, attempt.status) for attempt in ended.attempts] == [("unreachable", 0), ("first", 200)]
    assert ended.metadata["provider"] == "first"


@pytest.mark.parametrize("kind", ["rate_limit", "overloaded", "server", "authentication"])
def test_an_error_that_another_may_not_have_is_not_told_to_the_caller(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any, kind: Any
) -> None:
    lead(settings, "both", to("first"), to("second", weight=0))
    vendors.plays(CHAT, refuses(kind), says("Here."))
    answered = send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "both"}, x_api_key=key)
    assert (answered.status, len(vendors.requests)) == (200, 2)


def test_a_wrong_request_is_wrong_everywhere(relay: RunningRelay, key: str, vendors: Vendors, settings: Any) -> None:
    lead(settings, "both", to("first"), to("second"))
    vendors.plays(CHAT, refuses("invalid_request"))
    answered = send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "both"}, x_api_key=key)
    assert (answered.status, len(vendors.requests)) == (400, 1)


def test_failed_provider_is_skipped_for_as_long_as_it_asks(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "both", to("first"), to("second", weight=0))
    vendors.plays(CHAT, refuses("rate_limit", headers={"retry-after": "0.3"}))
    for _ in range(2):
        send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "both"}, x_api_key=key)
    told = [attempt.provider for ended in relay.ended(2) for attempt in ended.attempts]
    assert told == ["first", "second", "second"]
    assert order("both")[0] == "second"
    process_state.reset(routes.Cooldowns)
    routes.start_cooldown(upstreams_for("both", dialect=CHAT)[0], seconds=0.0)
    assert order("both")[0] == "first"


def test_what_fails_with_one_model_is_asked_for_others_all_the_same(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "claude-*", Target(provider="first", model="", weight=1), Target(provider="second", weight=0))
    vendors.plays(CHAT, refuses("not_found"), refuses("not_found"))
    assert (
        send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "claude-misspelt"}, x_api_key=key).status
        == 404
    )
    assert order("claude-right") == ["first", "second"]


def test_what_a_listed_path_comes_to_is_no_reason_to_leave_a_provider_alone(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "both", to("first"), to("second", weight=0))
    alike = [endpoint_at(vendors, CHAT, name=name, paths=("GET /v1/files/*",)) for name in ("first", "second")]
    process_state.set(registry.Router([HttpProvider(endpoint) for endpoint in alike]))
    assert send_request(relay, "/v1/files/none", method="GET", x_api_key=key).status == 404
    assert order("both") == ["first", "second"]


def test_requested_cooldown_holds_after_an_answer(providers: registry.Router, settings: Any) -> None:
    lead(settings, "both", to("first"), to("second", weight=0))
    first = upstreams_for("both", dialect=CHAT)[0]
    routes.start_cooldown(first, seconds=60)
    routes.end_cooldown(first)
    assert order("both")[0] == "second"
    routes.start_cooldown(first, seconds=None)
    routes.end_cooldown(first)
    assert order("both")[0] == "first"


@pytest.mark.parametrize("field", ["messages", "input"])
def test_conversations_with_the_same_instructions_are_shared_out(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any, field: str
) -> None:
    lead(settings, "both", to("first"), to("second"))
    for number in range(16):
        said = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"Question {number}"}]
        path, told = ("chat/completions", said) if field == "messages" else ("responses", f"Question {number}")
        send_request(relay, f"/v1/{path}", {"model": "both", field: told}, x_api_key=key)
    shared = Counter(ended.attempts[0].provider for ended in relay.ended(16))
    assert min(shared["first"], shared["second"]) >= 2


MARKED = {"cache_control": {"type": "ephemeral"}}
ANSWERED = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And?"}]


@pytest.mark.parametrize(
    ("path", "field", "first", "then"),
    [
        ("chat/completions", "messages", [{"type": "text", "text": "%s", **MARKED}], "%s"),
        ("chat/completions", "messages", [{"type": "text", "text": "%s", **MARKED}], [{"type": "text", "text": "%s"}]),
        ("responses", "input", "%s", [{"type": "input_text", "text": "%s"}]),
    ],
)
def test_a_conversation_stays_at_the_upstream_that_has_its_cache(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any, path: str, field: str, first: Any, then: Any
) -> None:
    lead(settings, "both", to("first"), to("second"))

    def respond(content: Any, *later: Any, number: int) -> None:
        said = json.dumps([{"role": "user", "content": content}, *later]).replace("%s", f"Question {number}")
        send_request(relay, f"/v1/{path}", {"model": "both", field: json.loads(said)}, x_api_key=key)

    for number in range(8):
        respond(first, number=number)
        respond(then, *ANSWERED, number=number)
    asked = [ended.attempts[0].provider for ended in relay.ended(16)]
    assert asked[::2] == asked[1::2]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_one_of_another_language_stands_in_and_is_translated(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any, stream: bool
) -> None:
    lead(settings, "both", to("first"), to("anthropic", "claude", weight=0))
    vendors.plays(CHAT, refuses("overloaded"))
    vendors.plays("anthropic-messages", says("From ", "afar."))
    with openai.OpenAI(api_key=key, base_url=f"{relay.url}/v1", max_retries=0) as client:
        told: Any = client.chat.completions.create(
            model="both", messages=[{"role": "user", "content": "hi"}], stream=stream
        )
        text = (
            "".join(piece.choices[0].delta.content or "" for piece in told if piece.choices)
            if stream
            else (told.choices[0].message.content)
        )
    assert text == "From afar."
    assert [seen.dialect for seen in vendors.requests] == [CHAT, "anthropic-messages"]
    assert relay.ended()[0].metadata["provider"] == "anthropic"
    digester = Digester(relay.journal.folder, name="test", end_wait=0)
    for _ in range(4):
        digester.step()
    row = Exchange.objects.select_related("message").get()
    assert (row.end_reason, row.provider, row.model, row.attempts) == ("done", "anthropic", "claude", 2)
    assert row.message is not None
    assert (row.message.content, row.metadata["translated_to"]) == ("From afar.", "anthropic-messages")


def test_one_of_the_callers_own_language_stands_in_untranslated(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "both", to("anthropic", "claude"), to("first", weight=0))
    vendors.plays("anthropic-messages", refuses("overloaded"))
    vendors.plays(CHAT, says("At home."))
    body = b'{ "model" : "both", "messages":[{"role":"user","content":"hi"}], "seed" : 1e1 }'
    answered = send_request(relay, "/v1/chat/completions", body, x_api_key=key)
    assert answered.json["choices"][0]["message"]["content"] == "At home."
    assert "x-parley-not-carried" not in answered.headers
    assert vendors.requests[1].body["seed"] == 10
    assert relay.ended()[0].metadata["dialect"] == CHAT


def test_only_capable_upstream_is_recorded_as_the_answering_one(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    """The first upstream can neither continue what another stores nor count for this caller."""
    own = HttpProvider(endpoint_at(vendors, RESPONSES, name="own"))
    process_state.set(registry.Router([HttpProvider(endpoint_at(vendors, CHAT, name="other")), own]))
    lead(settings, "both", to("own"))
    given = respond(relay, key, input="Question")["id"]
    lead(settings, "both", to("other", "elsewhere"), to("own", weight=0))
    respond(relay, key, input="And then?", previous_response_id=given)
    send_request(relay, "/v1/responses/input_tokens", {"model": "both", "input": "hi"}, x_api_key=key)
    for accepted in relay.accepted():
        assert (accepted.provider, accepted.model, accepted.upstream_dialect) == ("own", "model", RESPONSES)


def test_when_all_have_failed_the_last_one_is_heard(
    relay: RunningRelay, key: str, vendors: Vendors, settings: Any
) -> None:
    lead(settings, "both", to("first"), to("second", weight=0))
    vendors.plays(CHAT, refuses("server", "one"), refuses("overloaded", "two", headers={"retry-after": "9"}))
    answered = send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "both"}, x_api_key=key)
    assert (answered.status, answered.json["error"]["message"]) == (503, "two")
    assert answered.headers["retry-after"] == "9"
    # Both are cooling: that is no reason to refuse anybody.
    assert send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "both"}, x_api_key=key).status == 200


def test_a_rule_leads_to_another_language_too(relay: RunningRelay, key: str, vendors: Vendors, settings: Any) -> None:
    lead(settings, "gpt-*", to("anthropic", "claude"))
    answered = send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "gpt-6"}, x_api_key=key)
    assert answered.json["choices"][0]["message"]["content"] == "Hello."
    assert (vendors.requests[0].dialect, vendors.requests[0].body["model"]) == ("anthropic-messages", "claude")
    assert send_request(relay, "/v1/chat/completions", {**HI_BODY, "model": "unknown"}, x_api_key=key).status == 404


def test_aliases_are_in_the_list_of_models(relay: RunningRelay, key: str, settings: Any) -> None:
    lead(settings, "fast", to("first"))
    listed = send_request(relay, "/v1/models", method="GET", x_api_key=key).json["data"]
    assert "fast" in {model["id"] for model in listed}


RESPONSES = "openai-responses"


@pytest.fixture
def two_accounts(relay: RunningRelay, vendors: Vendors, settings: Any) -> None:
    alike = [HttpProvider(endpoint_at(vendors, RESPONSES, name=name)) for name in ("first", "second")]
    process_state.set(registry.Router(alike))
    lead(settings, "both", to("first"), to("second"))


def respond(relay: RunningRelay, key: str, **said: Any) -> Any:
    answered = send_request(relay, "/v1/responses", {"model": "both", **said}, x_api_key=key)
    assert answered.status == 200, answered.body
    return answered.json


@pytest.mark.usefixtures("two_accounts")
def test_what_one_account_keeps_is_gone_on_from_there(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    for number in range(10):
        vendors.plays(
            RESPONSES, *[raw(b'{"id":"resp_%d","object":"response","status":"completed","output":[]}' % number)]
        )
        respond(relay, key, input=f"Question {number}")
        respond(relay, key, input=f"And what of {number}?", previous_response_id=f"resp_{number}")
    asked = [accepted.provider for accepted in relay.accepted()]
    assert asked[::2] == asked[1::2]


@pytest.mark.usefixtures("two_accounts")
def test_what_another_process_was_given_is_looked_for_at_each(relay: RunningRelay, key: str, vendors: Vendors) -> None:
    given = respond(relay, key, input="Question")["id"]
    seen = process_state.get(ownership.IssuedIdCache).seen
    wait_for(lambda: any(seen.values()), seconds=5)
    seen.update(dict.fromkeys(seen, ""))
    vendors.plays(RESPONSES, refuses("invalid_request", "Previous response not found."), says("Here."))
    said = respond(relay, key, input="And then?", previous_response_id=given)
    assert said["output"][0]["content"][0]["text"] == "Here."
    there, here = relay.ended(2)[1].attempts
    assert (there.status, here.status, there.provider != here.provider) == (400, 200, True)
    # No provider has failed.
    assert process_state.get(routes.Cooldowns) == {}
