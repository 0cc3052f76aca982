"""The page /lint/: pasted text, a file or an own session; nothing is stored, strangers get 404."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from history.models import Message, Session
from history.pages import lint as page
from history.record import recorder
from tests.factories import create_chat, model_input, model_output, tool_request
from tests.history.access.test_permissions import with_right

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

UNANSWERED = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "<b>mine</b>"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
    ],
}


@pytest.fixture
def entered(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def test_a_visitor_is_sent_to_the_sign_in_page(client: Client) -> None:
    assert client.get("/lint/").status_code == 302


def test_what_is_pasted_gets_four_verdicts_findings_with_places_and_a_repaired_version(entered: Client) -> None:
    response = entered.post("/lint/", {"text": json.dumps(UNANSWERED)})
    shown = response.content.decode()
    assert response.status_code == 200
    assert [one["verdict"].outcome for one in response.context["verdicts"]] == ["rejected"] * 4
    assert "messages[1].tool_calls[0]" in shown
    assert "anthropic-messages/no-answer" in shown
    assert "`tool_use` ids were found without" in shown
    assert "[No result: this call was interrupted.]" in shown
    assert "<b>mine</b>" not in shown
    assert "&lt;b&gt;mine&lt;/b&gt;" in shown


def test_a_file_is_looked_at_in_the_language_that_is_named(entered: Client) -> None:
    file = SimpleUploadedFile("request.json", b'\xef\xbb\xbf{"messages": [{"role": "user", "content": "Hi"}]}')
    response = entered.post("/lint/", {"file": file, "language": "anthropic-messages"})
    native = next(one["verdict"] for one in response.context["verdicts"] if one["verdict"].is_native)
    assert native.dialect == "anthropic-messages"
    assert [one.rule.id for one in native.findings] == ["anthropic-messages/no-model", "anthropic-messages/no-limit"]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"text": ""}, "Paste a conversation or choose a file."),
        ({"text": "hello"}, "not valid JSON"),
        ({"text": '{"messages": []}\n{"messages": []}'}, "one at a time"),
        ({"file": SimpleUploadedFile("a.json", b"\xff\xfe")}, "This file is not UTF-8."),
    ],
)
def test_what_cannot_be_looked_at_is_told_in_words(entered: Client, sent: dict[str, Any], words: str) -> None:
    response = entered.post("/lint/", sent)
    assert response.status_code == 422
    assert words in response.content.decode()


def test_what_is_too_long_is_told_with_the_limit(entered: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PASTED_CHARS", 10)
    monkeypatch.setattr(page, "MAX_CHARS", 10)
    assert "Paste up to 10 characters" in entered.post("/lint/", {"text": "x" * 11}).content.decode()
    file = SimpleUploadedFile("a.json", b"x" * 11)
    assert "Up to 10 characters are checked; this has 11." in entered.post("/lint/", {"file": file}).content.decode()


def test_a_request_of_too_many_messages_is_told(entered: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_ENTRIES", 1)
    response = entered.post("/lint/", {"text": json.dumps(UNANSWERED)})
    assert response.status_code == 422
    assert "this one has 2." in response.content.decode()


def test_nothing_but_brackets_is_not_looked_at(entered: Client) -> None:
    """It takes seconds and hundreds of megabytes, and is written in a moment."""
    text = '{"messages":[{"role":"user","content":[' + "[]," * 110_000 + "[]]}]}"
    response = entered.post("/lint/", {"text": text})
    assert (response.status_code, "too many values" in response.content.decode()) == (422, True)


def test_nothing_that_is_pasted_is_stored(entered: Client) -> None:
    before = (Session.objects.count(), Message.objects.count())
    entered.post("/lint/", {"text": json.dumps(UNANSWERED)})
    assert (Session.objects.count(), Message.objects.count()) == before


def test_one_of_ones_sessions_is_looked_at_with_its_entries_as_places(entered: Client, ada: Any) -> None:
    session = create_chat(ada, title="Looms")
    recorder.append_many(session, [model_input("Hi"), model_output("", tool_request("a"))], after=0)
    response = entered.get(f"/lint/?session={session.pk}")
    assert [one["verdict"].is_rejected for one in response.context["verdicts"]] == [True] * 4
    shown = response.content.decode()
    assert "<code>#2</code>" in shown
    assert "Looms" in shown


def test_a_session_that_is_too_long_is_told(entered: Client, ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_ENTRIES", 1)
    response = entered.get(f"/lint/?session={create_chat(ada, 'one', 'two').pk}")
    assert response.status_code == 422
    assert "up to 1 messages; this one has 2." in response.content.decode()


def test_sessions_of_others_are_404_and_staff_give_a_reason(client: Client, ada: Any, bob: Any, staff: Any) -> None:
    session = create_chat(ada, "the secret", title="Looms")
    client.force_login(bob)
    assert client.get(f"/lint/?session={session.pk}").status_code == 404
    assert client.get("/lint/?session=nonsense").status_code == 404
    assert "Looms" not in client.get("/lint/").content.decode()
    client.force_login(with_right(staff, "view_session", "read_session"))
    response = client.get(f"/lint/?session={session.pk}")
    assert response.status_code == 403
    assert "the secret" not in response.content.decode()


@pytest.mark.parametrize(
    ("pasted", "words"),
    [
        ({"messages": "none"}, "messages 必须是列表。"),
        ({}, "这不是对话：请求应含 messages、input 或 contents"),
        (7, "这不是对话：对话应为 JSON 对象或消息列表。"),
    ],
)
def test_what_is_wrong_is_told_in_the_readers_language(entered: Client, ada: Any, pasted: Any, words: str) -> None:
    ada.language = "zh-hans"
    ada.save()
    assert words in entered.post("/lint/", {"text": json.dumps(pasted)}).content.decode()
