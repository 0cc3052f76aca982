"""Texts are redacted before the transaction that files a call: it holds SQLite's write lock."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from history.db import transactions
from history.models import ApiKey, Exchange, Message
from tests.factories import without_guards
from tests.relay.digest.relayed import Relay, call, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

CHAT = "openai-chat"
SECRET = "sk-proj-" + "a1B2c3D4" * 6
seen: list[tuple[str, bool]] = []


def note_text(text: str) -> str:
    """A redaction hook: it sees every text, and whether a transaction of ours is open."""
    seen.append((text, bool(transactions._blocks.open)))
    return text


@pytest.fixture(autouse=True)
def _hook(settings: Any, relay: Relay) -> None:
    settings.PARLEY_REDACTION_HOOKS = [f"{__name__}.note_text"]
    relay.key.recording = "redacted"
    relay.key.save()
    seen.clear()


def relay_call(
    relay: Relay, *messages: dict[str, Any], answer: Any, headers: dict[str, str] | None = None, **more: Any
) -> Any:
    return relay.relay_call(CHAT, {"model": "m", "messages": list(messages), **more}, answer, headers)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assert_redacted_before(*texts: str) -> None:
    assert {text for text, is_open in seen if is_open} == set()
    for text in texts:
        assert any(text in one for one, _ in seen), text


def test_requests_answers_and_results_are_redacted_before(relay: Relay) -> None:
    headers = {"X-Parley-Session-Id": "job-1"}
    first = [{"role": "system", "content": "Be brief."}, user("Look it up")]
    relay_call(
        relay,
        *first,
        answer=model_answer("Looking", call("find", "c1", q="words"), call("find", "c2")),
        headers=headers,
    )
    calls = [
        {"id": name, "type": "function", "function": {"name": "find", "arguments": arguments}}
        for name, arguments in (("c1", '{"q": "words"}'), ("c2", "{}"))
    ]
    results = [{"role": "tool", "tool_call_id": name, "content": f"found {name}"} for name in ("c2", "c1")]
    asked = {"role": "assistant", "content": "Looking", "tool_calls": calls}
    relay_call(relay, *first, asked, *results, answer=model_answer("Done"), headers=headers)
    assert path_of(sessions()[0]) == ["u:Look it up", "a:Looking", "t:found c1\n\nfound c2", "a:Done"]
    assert_redacted_before("Be brief.", "Look it up", "Looking", "words", "found c1", "Done")


def test_results_without_calls_and_edits_are_redacted_before(relay: Relay) -> None:
    relay_call(relay, user("One"), answer=model_answer("1"))
    stray = {"role": "tool", "tool_call_id": f"call {SECRET}", "content": "stray"}
    relay_call(relay, user("One"), {"role": "assistant", "content": "1"}, stray, answer=model_answer("2"))
    relay_call(relay, user("One"), {"role": "assistant", "content": "1"}, user("Edited"), answer=model_answer("3"))
    assert not Message.objects.filter(body__contains=SECRET).exists()
    assert_redacted_before("stray", "Edited", "3")


def test_errors_side_calls_and_files_are_redacted_before(relay: Relay) -> None:
    headers = {"User-Agent": "opencode/1.0", "X-Parley-Session-Id": "job-1"}
    schema = {"type": "json_schema", "json_schema": {"name": "t", "schema": {"type": "object"}}}
    tools = [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]
    relay_call(relay, user("Real question"), answer=model_answer("Real answer"), headers=headers, tools=tools)
    title = [{"role": "system", "content": "Write a title."}, user("For: Real question")]
    relay_call(relay, *title, answer=model_answer("The title"), headers=headers, response_format=schema)
    file = base64.b64encode(b"notes in a file").decode()
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{file}"}}
    relay_call(relay, user([part, {"type": "text", "text": "Read this"}]), answer=model_answer("Read"))
    failed = relay.send(CHAT, {"model": "m", "messages": [user("Fails")]})
    relay.fail(failed, 500, b'{"error": {"message": "the vendor is down"}}')
    relay.digest()
    assert exchange_of(failed).end_reason == "upstream_error"
    assert_redacted_before("Real question", "Write a title.", "The title", "notes in a file", "the vendor is down")


def test_a_key_that_becomes_stricter_in_between_is_obeyed(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is looked at again by the transaction itself."""
    from relay.digest import filing

    relay.key.recording = "full"
    relay.key.save()
    before = filing._redact

    def prepare_and_change(*given: Any) -> None:
        before(*given)
        without_guards(ApiKey.objects.filter(pk=relay.key.pk)).update(recording="redacted")

    exchange = relay.send(CHAT, {"model": "m", "messages": [user(f"my key is {SECRET}")]}, {"X-Parley-Session-Id": "a"})
    relay.digest()  # the session is there by now, and is read again with its key
    monkeypatch.setattr(filing, "_redact", prepare_and_change)
    relay.answer(exchange, model_answer(f"You said {SECRET}"))
    relay.digest()
    stored = Message.objects.get(kind="model_output")
    assert SECRET not in (stored.body or "")
    assert Exchange.objects.get(pk=exchange).end_reason == "done"
