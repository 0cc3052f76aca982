"""Admin of messages, tool calls and exchanges: texts after a reason, search by the engine."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history.access import keys
from history.access.reasons import open_for_reading
from history.models import AuditEvent, Exchange, Message, Session, ToolCall
from history.record import exchanges, recorder
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results
from tests.history.access.test_permissions import with_right

pytestmark = pytest.mark.django_db

MESSAGES, CALLS, EXCHANGES = "/admin/history/message/", "/admin/history/toolcall/", "/admin/history/exchange/"


@pytest.fixture
def session(ada: Any) -> Session:
    session = create_chat(ada, "the secret loom", title="Looms")
    talk = [
        model_output("I **look**.", tool_request("c1", "sys_monitor", '{"metric": "cpu"}')),
        tool_results(tool_result("c1")),
    ]
    recorder.append_many(session, talk, after=1)
    return session


@pytest.fixture
def auditor(client: Client, staff: Any) -> Client:
    client.force_login(with_right(staff, "view_session", "read_session"))
    return client


def read(client: Client, address: str, **params: Any) -> str:
    response = client.get(address, params)
    assert response.status_code == 200
    return unescape(response.content.decode())


def rows(html: str) -> int:
    return len(re.findall(r'<tr>\s*<t[hd] class="(?:action-checkbox|field-)', html))


def test_a_list_shows_no_text_of_what_was_not_opened(auditor: Client, session: Session, staff: Any) -> None:
    html = read(auditor, MESSAGES)
    assert str(session) in html
    assert "Looms" not in html
    assert "secret" not in html
    assert "Give a reason to read it" in html
    assert "cpu" not in read(auditor, CALLS)
    open_for_reading(with_right(staff, "view_session", "read_session"), session, reason="ticket 7")
    assert "the secret loom" in read(auditor, MESSAGES)
    assert "cpu" in read(auditor, CALLS)


def test_the_page_of_one_asks_why(auditor: Client, session: Session) -> None:
    answer, call = Message.objects.get(session=session, seq=2), ToolCall.objects.get()
    for address in (f"{MESSAGES}{answer.pk}/change/", f"{CALLS}{call.pk}/change/"):
        response = auditor.get(address)
        assert response.status_code == 403
        assert f'value="{address}"' in response.content.decode()
    auditor.post(f"/s/{session.pk}/open/", {"reason": "ticket 7"})
    html = read(auditor, f"{MESSAGES}{answer.pk}/change/")
    assert "<strong>look</strong>" in html
    assert '{"metric": "cpu"}' in html, "its calls stand with it"
    assert '{"metric": "cpu"}' in read(auditor, f"{CALLS}{call.pk}/change/")
    assert [event.action for event in AuditEvent.objects.all()] == ["session.read"]


def test_messages_are_found_and_filtered_by_the_search_engine(
    auditor: Client, session: Session, bob: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_chat(bob, "another loom", "an answer", model="m2")
    assert rows(read(auditor, MESSAGES)) == 5
    assert rows(read(auditor, MESSAGES, q="loom")) == 2
    assert rows(read(auditor, MESSAGES, q='"secret loom"')) == 1
    assert rows(read(auditor, MESSAGES, role="tool")) == 1
    assert rows(read(auditor, MESSAGES, role="user", q="loom -secret")) == 1
    assert rows(read(auditor, CALLS, tool="sys_monitor")) == 1
    assert rows(read(auditor, CALLS, tool="shell")) == 0
    assert rows(read(auditor, CALLS, q="cpu")) == 1


def test_what_is_hidden_is_not_there(auditor: Client, session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(state=Session.State.DELETED, hidden_at=session.created_at)
    assert rows(read(auditor, MESSAGES)) == rows(read(auditor, CALLS)) == 0
    message = Message.objects.filter(session=session)[0]
    assert auditor.get(f"{MESSAGES}{message.pk}/change/").status_code == 302


def test_exchanges_show_times_and_costs_and_no_text(client: Client, session: Session, ada: Any, staff: Any) -> None:
    exchange = exchanges.open_exchange(session=session, owner=ada, model="m1", provider="local", after=session.head)
    Exchange.objects.filter(pk=exchange.pk).update(partial="half a secret", inputs={"live": "secret"}, error="secret")
    Exchange.objects.create(owner=ada, model="loose", session=None)
    client.force_login(with_right(staff, "view_session"))
    html = read(client, EXCHANGES)
    assert rows(html) == 2
    assert "loose" in html
    page = read(client, f"{EXCHANGES}{exchange.pk}/change/")
    assert "m1" in page
    assert "secret" not in html + page
    assert rows(read(client, EXCHANGES, model="m1")) == 1


def test_how_a_call_ended_is_told_in_the_reader_s_words_too(client: Client, ada: Any, staff: Any) -> None:
    ended = {"ended_at": timezone.now(), "end_reason": "client_gone"}
    exchange = Exchange.objects.create(owner=ada, model="m1", **ended)
    client.force_login(with_right(staff, "view_session"))
    address = f"{EXCHANGES}{exchange.pk}/change/"
    assert "client_gone: The client disconnected." in read(client, address)
    in_chinese = client.get(address, headers={"Accept-Language": "zh-hans"}).content.decode()
    assert re.search(r"client_gone: [\u4e00-\u9fff]+", in_chinese)


def test_a_call_that_has_ended_shows_how_long_it_took_and_no_time_to_come(
    client: Client, session: Session, ada: Any, staff: Any
) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    began = timezone.now().replace(microsecond=0)
    in_a_day = began + timedelta(days=1)
    usage = {"input_tokens": 1200, "output_tokens": 340}
    exchange = Exchange.objects.create(
        session=session, owner=ada, api_key=key, model="m1", started_at=began, heartbeat_at=in_a_day, usage=usage,
        cost=Decimal("0.0123"), metadata={"path": "/v1/messages", "helper": "title"},
    )  # fmt: skip
    client.force_login(with_right(staff, "view_session"))
    address = f"{EXCHANGES}{exchange.pk}/change/"
    assert "ast heartbeat" not in read(client, address)
    Exchange.objects.filter(pk=exchange.pk).update(heartbeat_at=began)
    assert "ast heartbeat" in read(client, address)
    Exchange.objects.filter(pk=exchange.pk).update(ended_at=began + timedelta(seconds=7), end_reason="done")
    page = read(client, address)
    assert "ast heartbeat" not in page
    for words in (
        "7.0 s",
        "$0.0123",
        "/v1/messages",
        "title",
        "1\u202f200 + 340",
        f"{timezone.localtime(began):%H:%M:%S} (",
    ):
        assert words in page, words
    assert f"m1, {timezone.localtime(began):%Y-%m-%d %H:%M:%S}" in page
    for words in ("laptop", "7.0 s", "1\u202f200 + 340", "$0.0123"):
        assert words in read(client, EXCHANGES), words


def test_no_address_of_a_list_tells_whether_a_guess_at_a_text_is_right(
    client: Client, session: Session, ada: Any, staff: Any
) -> None:
    exchange = exchanges.open_exchange(session=session, owner=ada, model="m1", after=session.head)
    Exchange.objects.filter(pk=exchange.pk).update(partial="half a secret", inputs={"live": "secret"}, error="secret")
    client.force_login(with_right(staff, "view_session", "read_session"))
    for guess in ("partial__contains", "inputs__live__startswith", "error__regex", "metadata__has_key"):
        assert client.get(EXCHANGES, {guess: "s"}).status_code == 400, guess
    assert client.get("/admin/history/session/", {"metadata__has_key": "s"}).status_code == 400
    assert client.get(MESSAGES, {"content__startswith": "the s"}).status_code == 400
    assert client.get(CALLS, {"arguments__contains": "cpu"}).status_code == 400
