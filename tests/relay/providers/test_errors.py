"""What can go wrong on the way to a vendor and back: who is told what, what is tried again, and what is not."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path

import pytest

from history.answers.events import AnswerFailed, ErrorKind, TextPiece
from history.dialects import DIALECTS, CallOptions
from relay.errors import AccessRefused, Busy, Cut, ProviderError, RequestRefused, Unreachable, VendorFault
from relay.providers import connections
from relay.providers.endpoints import Endpoint, Timeouts
from relay.providers.http import HttpProvider, retry_after, wait_after
from tests.relay.providers.provider_calls import call_provider, context
from tests.servers.processes import free_port, run_manage
from tests.vendors import KEYS, Play, Vendors, raw, refuses, says
from tests.vendors.setup import HASTE, endpoint_at

pytestmark = pytest.mark.runs_first

each_dialect = pytest.mark.parametrize("dialect", list(DIALECTS))


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relay.providers.http.FIRST_WAIT", 0.02)


def provider_at(vendors: Vendors, dialect: str = "openai-chat", **changes: object) -> HttpProvider:
    return HttpProvider(endpoint_at(vendors, dialect, **changes))


# The tree of errors


@each_dialect
@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("invalid_request", RequestRefused),
        ("context_length", RequestRefused),
        ("not_found", RequestRefused),
        ("authentication", AccessRefused),
        ("permission", AccessRefused),
        ("rate_limit", Busy),
        ("overloaded", Busy),
        ("server", VendorFault),
    ],
)
async def test_each_vendors_error_is_the_one_of_ours_that_says_whose_fault_it_is(
    vendors: Vendors, dialect: str, kind: ErrorKind, error: type[ProviderError]
) -> None:
    words = "prompt is too long: 9 tokens > 8 maximum" if kind == "context_length" else ""
    vendors.plays(dialect, *[refuses(kind, words)] * 3)
    result = await call_provider(provider_at(vendors, dialect))
    assert type(result.error) is error
    assert result.error.kind == kind
    assert result.error.status >= 400
    assert result.error.provider == provider_at(vendors, dialect).name
    assert result.notes.attempts == len(vendors.requests) == (3 if error.retry_helps else 1)


async def test_a_wrong_key_is_the_operators_fault_and_is_tried_once(vendors: Vendors) -> None:
    result = await call_provider(provider_at(vendors, "anthropic-messages", api_key="sk-ant-wrong-0123456789"))
    assert isinstance(result.error, AccessRefused)
    assert (result.error.whose, result.error.status, result.notes.attempts) == ("operator", 401, 1)


async def test_a_proxys_page_instead_of_json_is_shown_by_its_beginning(vendors: Vendors) -> None:
    vendors.plays("openai-chat", *[raw(b"<h1>502 Bad Gateway</h1>", content_type="text/html", status=502)] * 3)
    result = await call_provider(provider_at(vendors))
    assert isinstance(result.error, VendorFault)
    assert "Bad Gateway" in str(result.error)


# Trying again


@each_dialect
async def test_what_a_retry_helps_is_tried_again_and_the_person_notices_nothing(vendors: Vendors, dialect: str) -> None:
    overloaded = refuses("overloaded", status=529) if dialect == "anthropic-messages" else refuses("overloaded")
    vendors.plays(dialect, overloaded, refuses("server"), says("Here I am."))
    result = await call_provider(provider_at(vendors, dialect))
    assert (result.error, result.text, result.notes.attempts) == (None, "Here I am.", 3)


@pytest.mark.parametrize("headers", [{"retry-after-ms": "300", "retry-after": "30"}, {"retry-after": "0.3"}])
async def test_a_vendor_that_says_when_is_obeyed(vendors: Vendors, headers: dict[str, str]) -> None:
    vendors.plays("openai-chat", refuses("rate_limit", headers=headers))
    began = time.monotonic()
    result = await call_provider(provider_at(vendors))
    assert result.error is None
    assert 0.3 <= time.monotonic() - began < 5


async def test_a_vendor_that_wants_to_be_left_alone_for_long_is_told_about_at_once(vendors: Vendors) -> None:
    vendors.plays("openai-chat", refuses("rate_limit", headers={"retry-after": "3600"}))
    result = await call_provider(provider_at(vendors))
    assert isinstance(result.error, Busy)
    assert (result.error.retry_after, result.notes.attempts) == (3600.0, 1)


async def test_the_vendors_own_word_on_retrying_wins(vendors: Vendors) -> None:
    vendors.plays("openai-chat", refuses("server", headers={"x-should-retry": "false"}))
    assert (await call_provider(provider_at(vendors))).notes.attempts == 1
    vendors.plays("openai-chat", refuses("conflict", headers={"x-should-retry": "true"}))
    again = await call_provider(provider_at(vendors))
    assert (again.error, again.notes.attempts) == (None, 2)


def test_a_retry_after_is_read_as_seconds_milliseconds_or_a_date() -> None:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    in_a_minute = format_datetime(now + timedelta(minutes=1), usegmt=True)
    assert retry_after({"retry-after": "7"}) == 7
    assert retry_after({"retry-after-ms": "250", "retry-after": "7"}) == 0.25
    assert retry_after({"retry-after": in_a_minute}, now=now) == 60
    assert retry_after({"retry-after": format_datetime(now - timedelta(days=1), usegmt=True)}, now=now) == 0
    for nonsense in ("", "soon", "-3", "nan", "inf", f"Wed, 18 Nov 2026 00:00:00 +{'9' * 20}"):
        assert retry_after({"retry-after": nonsense}) is None


def test_waits_grow_and_have_an_end() -> None:
    error = VendorFault("broken")
    waits = [wait_after(error, attempt=n, spent=0, timeouts=Timeouts(attempts=9)) or 0 for n in range(1, 9)]
    assert all(before < after for before, after in pairwise(waits[:4]))
    assert max(waits) <= 8
    assert wait_after(error, attempt=9, spent=0, timeouts=Timeouts(attempts=9)) is None
    assert wait_after(error, attempt=1, spent=60, timeouts=Timeouts()) is None
    assert wait_after(RequestRefused("no"), attempt=1, spent=0, timeouts=Timeouts()) is None


async def test_nothing_is_tried_again_once_an_answer_has_begun(vendors: Vendors) -> None:
    vendors.plays("openai-chat", replace(says("Half an ", "answer"), cut_at=500))
    result = await call_provider(provider_at(vendors))
    assert isinstance(result.error, Cut)
    assert (result.notes.attempts, len(vendors.requests)) == (1, 1)


# In the middle of an answer


@each_dialect
async def test_what_came_before_a_cut_is_kept_and_the_cut_is_told(vendors: Vendors, dialect: str) -> None:
    pieces = [f"piece {number} " for number in range(20)]
    whole = says(*pieces)
    vendors.plays(dialect, replace(whole, cut_at=2500, delay=0.001))
    result = await call_provider(provider_at(vendors, dialect))
    assert isinstance(result.error, Cut)
    assert result.error.whose == "network"
    assert result.text
    assert "".join(pieces).startswith(result.text)
    assert result.output.status == "interrupted"


@each_dialect
async def test_a_stream_that_just_ends_is_a_cut_too(vendors: Vendors, dialect: str) -> None:
    vendors.plays(dialect, Play(events=(TextPiece(part="t", text="Half an"),)))
    result = await call_provider(provider_at(vendors, dialect))
    assert isinstance(result.error, Cut)
    assert result.text == "Half an"


@each_dialect
async def test_an_error_event_after_a_200_keeps_what_was_said(vendors: Vendors, dialect: str) -> None:
    failed = AnswerFailed(message="Overloaded", kind="overloaded")
    vendors.plays(dialect, Play(events=(TextPiece(part="t", text="Half an"), failed)))
    result = await call_provider(provider_at(vendors, dialect))
    assert result.text == "Half an"
    assert isinstance(result.error, Busy | VendorFault)
    assert result.error.failed.message == "Overloaded"
    assert result.notes.attempts == 1


async def test_a_vendor_that_falls_silent_is_given_up(vendors: Vendors) -> None:
    impatient = replace(HASTE, idle=1, attempts=1)
    provider = provider_at(vendors, timeouts=impatient)
    vendors.plays("openai-chat", replace(says("Hm", "m"), delay=30), replace(says("late"), wait=30))
    middle, beginning = await call_provider(provider), await call_provider(provider)
    assert isinstance(middle.error, Cut)
    assert middle.text == "Hm"
    assert isinstance(beginning.error, VendorFault)
    assert (middle.error.kind, beginning.error.kind) == ("timeout", "timeout")


async def test_slow_tokens_are_no_silence(vendors: Vendors) -> None:
    provider = provider_at(vendors, timeouts=replace(HASTE, idle=1.5, attempts=1))
    vendors.plays("openai-chat", replace(says(*"slowly"), delay=0.4))
    result = await call_provider(provider)
    assert (result.error, result.text) == (None, "slowly")


# Unreachable


async def test_address_without_a_server_is_unreachable(vendors: Vendors) -> None:
    result = await call_provider(provider_at(vendors, base_url=f"http://127.0.0.1:{free_port()}/v1"))
    assert isinstance(result.error, Unreachable)
    assert (result.error.whose, result.notes.attempts) == ("network", 3)
    assert "no server is listening" in str(result.error)
    assert str(result.error) == f"{result.error.host} cannot be reached ({result.error.reason})"


async def test_a_server_that_closes_without_a_word_is_unreachable_and_tried_again(vendors: Vendors) -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        result = await call_provider(provider_at(vendors, base_url=f"http://127.0.0.1:{port}/v1"))
    assert isinstance(result.error, Unreachable)
    assert result.notes.attempts == 3


# Going away


async def test_closing_the_generator_frees_the_vendor_at_once(vendors: Vendors) -> None:
    """S2.42."""
    vendors.plays("openai-chat", replace(says(*"a long answer"), delay=0.2))
    async with aclosing(provider_at(vendors).call(context(), CallOptions(model="model"))) as events:
        async for event in events:
            if isinstance(event, TextPiece) and event.text:
                break
    assert await asyncio.to_thread(vendors.requests[0].left.wait, 2)


@pytest.mark.parametrize("play", [replace(says("late"), wait=30), replace(says(*"slow"), delay=0.3)])
async def test_cancelling_frees_the_vendor_before_and_after_the_first_byte(vendors: Vendors, play: Play) -> None:
    vendors.plays("openai-chat", play)
    task = asyncio.create_task(call_provider(provider_at(vendors)))
    await asyncio.to_thread(vendors.wait_for, 1)
    await asyncio.sleep(0.1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert await asyncio.to_thread(vendors.requests[0].left.wait, 2)


async def test_cancelling_between_attempts_ends_the_call(vendors: Vendors) -> None:
    vendors.plays("openai-chat", refuses("rate_limit", headers={"retry-after": "9"}))
    task = asyncio.create_task(call_provider(provider_at(vendors)))
    await asyncio.to_thread(vendors.wait_for, 1)
    await asyncio.sleep(0.05)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert len(vendors.requests) == 1


# Secrets


async def test_no_key_is_in_a_log_an_error_or_a_repr(
    vendors: Vendors, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("relay"), "propagate", True)
    key = KEYS["openai"]
    header = "another secret of the operator"
    provider = provider_at(vendors, headers={"X-Gateway-Key": header})
    vendors.plays("openai-chat", refuses("server", f"boom {key} {header}"), refuses("authentication", f"bad key {key}"))
    refused = await call_provider(provider)
    vendors.plays("openai-chat", Play(events=(AnswerFailed(message=f"{key} has no money", kind="billing"),)))
    failed = await call_provider(provider)
    sent_context = (
        f"{refused.error!r} {refused.error} {vars(refused.error)} {failed.error!r} {vars(failed.error)} {caplog.text}"
    )
    sent_context += f"{provider.endpoint!r} {provider.last_error!r}"
    assert refused.error is not None
    assert "bad key •••" in str(refused.error)
    assert "again in" in caplog.text
    assert key not in sent_context
    assert header not in sent_context


# Rules of the dialer


async def test_no_host_but_this_machine_is_called_in_tests(vendors: Vendors) -> None:
    for host in ("https://api.openai.com/v1", "http://10.0.0.1/v1", "http://localhost.example.org/v1"):
        result = await call_provider(provider_at(vendors, base_url=host))
        assert isinstance(result.error, AccessRefused)
        assert "PARLEY_LOOPBACK_ONLY" in str(result.error)
        assert result.notes.attempts == 1
    assert connections.is_loopback("127.0.0.1")
    assert connections.is_loopback("::1")
    assert connections.is_loopback("localhost")


def test_no_process_that_a_test_starts_calls_another_machine(tmp_path: Path) -> None:
    code = (
        "from relay.pages.providers import run_connection_test; from relay.providers.registry import router;"
        "print(repr(run_connection_test(router().route('openai/gpt-x')).error))"
    )
    variables = {"PARLEY_DATA_DIR": str(tmp_path), "OPENAI_API_KEY": "sk-not-a-real-key-0123"}
    done = run_manage("shell", "--no-imports", "--command", code, **variables)
    assert done.stdout.startswith("AccessRefused('PARLEY_LOOPBACK_ONLY is on"), done.stderr


async def test_any_request_of_a_session_is_held_back(vendors: Vendors) -> None:
    with pytest.raises(AccessRefused):
        await connections.session().get("https://api.anthropic.com/v1/models")


async def test_a_loop_has_one_session_and_closing_ends_it(vendors: Vendors) -> None:
    first = connections.session()
    assert connections.session() is first
    assert connections.session(keeps_alive=False) is not first
    await connections.close()
    assert first.closed
    assert (await call_provider(provider_at(vendors))).error is None
    assert connections.session() is not first


async def test_the_latest_trouble_of_a_provider_is_remembered_until_it_works_again(vendors: Vendors) -> None:
    provider = provider_at(vendors)
    vendors.plays("openai-chat", refuses("billing"))
    await call_provider(provider)
    assert provider.last_error is not None
    assert provider.last_error.error.kind == "billing"
    # What was said in the call is not kept alive by it.
    assert provider.last_error.error.__traceback__ is None
    await call_provider(provider)
    assert provider.last_error is None


@pytest.mark.parametrize("secret", ["k7", "abc-12", "token-of-8"])
async def test_a_secret_that_the_vendor_repeats_is_masked_in_its_error(vendors: Vendors, secret: str) -> None:
    vendors.plays("openai-chat", refuses("invalid_request", f"Incorrect tenant key provided: {secret}."))
    error = (await call_provider(provider_at(vendors, headers={"X-Tenant-Key": secret}))).error
    assert isinstance(error, RequestRefused)
    assert "Incorrect tenant key provided: •••." in str(error)


@pytest.mark.parametrize("key", ["k", "abc-12", "token-of-8"])
def test_a_key_is_masked_however_short_it_is(key: str) -> None:
    endpoint = Endpoint(name="a", dialect="openai-chat", base_url="http://a", api_key=key, headers={"X-Token": "t1"})
    text = endpoint.masked(f"Incorrect API key: {key}. Sent '{key}' and t1, not st1ll or bank.")
    assert text == "Incorrect API key: •••. Sent '•••' and •••, not st1ll or bank."
