"""Parley as an MCP server, asked by the official client: the same rights as REST, limits, and nothing for strangers."""

from __future__ import annotations

import importlib
import json
import threading
from contextlib import closing
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from history.access import keys
from history.models import ApiKey, AuditEvent, Message, Session
from history.record import recorder
from project.accounts.models import User
from tests.factories import create_chat, model_input
from tests.relay.mcp_server.mcp_client import call_tool, call_tool_text, list_tool_names, run_with_client, text_of

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool

FOUR = ["search_history", "read_session", "list_sessions", "append_note"]


def key_of(
    owner: User, *, scopes: tuple[str, ...] = ("read", "write"), wide: bool = True, recording: str = "full"
) -> str:
    made = keys.create(name="laptop", owner=owner, scopes=scopes, owner_wide=wide, recording=recording)
    return made.secret


def test_the_official_client_lists_the_tools_by_either_handshake(url: str, ada: User) -> None:
    key = key_of(ada)
    assert list_tool_names(url, key) == FOUR
    assert list_tool_names(url, key, mode="legacy") == FOUR
    assert list_tool_names(url, key_of(ada, scopes=("read",))) == FOUR[:3]

    async def described(client: Client) -> tuple[str, str, list[Tool]]:
        assert client.server_info
        return client.server_info.name, client.instructions or "", (await client.list_tools()).tools

    name, instructions, tools = run_with_client(url, key, described)
    assert name == "parley"
    assert "Earlier sessions" in instructions
    search, note = tools[0], tools[-1]
    assert search.input_schema["required"] == ["query"]
    assert "this_conversation" not in search.input_schema["properties"]
    assert [tool.annotations and tool.annotations.read_only_hint for tool in (search, note)] == [True, False]


def test_what_was_said_is_found_listed_and_read(url: str, ada: User, bob: User) -> None:
    chat = create_chat(ada, "Which port does the quokka service use?", "It listens on 7345.", title="Ports")
    create_chat(bob, "My quokka is a secret.")
    key = key_of(ada)
    found = call_tool_text(url, key, "search_history", query="quokka")
    assert str(chat.pk) in found
    assert "secret" not in found
    assert call_tool_text(url, key, "list_sessions", query="quokka").startswith(f"{chat.pk} Ports (")
    assert "It listens on 7345." in call_tool_text(url, key, "read_session", session=str(chat.pk))


def test_a_list_is_read_a_page_at_a_time(url: str, ada: User) -> None:
    chats = {str(create_chat(ada, f"Question {number}").pk) for number in range(3)}
    key, seen, cursor = key_of(ada), [], None
    for _ in chats:
        [line, *more] = call_tool_text(url, key, "list_sessions", limit=1, cursor=cursor).splitlines()
        seen.append(line.split()[0])
        cursor = more[0].partition("cursor=")[2] if more else None
    assert (set(seen), cursor) == (chats, None)
    assert "cursor is not valid" in text_of(call_tool(url, key, "list_sessions", cursor="yesterday"))


def test_a_key_reaches_what_rest_would_give_it(url: str, ada: User, bob: User) -> None:
    narrow = key_of(ada, wide=False)
    under_it = recorder.start_session(owner=ada, api_key=keys.authenticate(narrow), source=Session.Source.RELAY)
    recorder.append(under_it, model_input("Recorded under this key."), after=0)
    other, foreign = create_chat(ada, "Not under this key."), create_chat(bob, "Bob's.")
    assert [line.split()[0] for line in call_tool_text(url, narrow, "list_sessions").splitlines()] == [str(under_it.pk)]
    for session in (other, foreign):
        assert text_of(call_tool(url, narrow, "read_session", session=str(session.pk))) == "There is no such session."
    assert "There is no tool" in text_of(call_tool(url, key_of(ada, scopes=("read",)), "append_note", text="Hm."))


def test_texts_of_other_owners_need_a_reason_that_the_owner_can_see(url: str, ada: User, staff: User) -> None:
    chat = create_chat(ada, "A heron stood in the reeds.", title="Birds")
    key = key_of(staff, scopes=("read", "admin"))
    shut = call_tool_text(url, key, "search_history", query="heron")
    assert "reeds" not in shut
    assert "give read_session a reason" in shut
    assert "belongs to another user" in text_of(call_tool(url, key, "read_session", session=str(chat.pk)))
    assert "3 to 500" in text_of(call_tool(url, key, "read_session", session=str(chat.pk), reason="x"))
    assert "reeds" in call_tool_text(url, key, "read_session", session=str(chat.pk), reason="Looking into a complaint.")
    assert AuditEvent.objects.get(session=chat.pk).reason == "Looking into a complaint."
    assert "reeds" in call_tool_text(url, key, "search_history", query="heron")


def test_a_note_is_kept_apart_and_found_again(url: str, ada: User) -> None:
    chat = create_chat(ada, "What now?", "Wait.")
    key = key_of(ada, recording="redacted")
    first = call_tool_text(url, key, "append_note", text="We chose blue-green deploys.", session=str(chat.pk))
    second = call_tool_text(url, key, "append_note", text="The token is sk-ant-api03-" + "a1B2" * 24)
    assert first.split()[-1] == second.split()[-1]
    found = call_tool_text(url, key, "search_history", query='"blue-green"')
    assert f"About session {chat.pk}" in call_tool_text(url, key, "read_session", session=first.split()[-1].rstrip("."))
    assert "Notes: laptop" in found
    notes = Message.objects.filter(session__title="Notes: laptop").order_by("seq")
    assert [note.on_path for note in notes] == [True, True]
    assert "[redacted:" in notes[1].content
    chat.refresh_from_db()
    assert chat.version == 2


def test_a_note_that_cannot_be_kept_says_why(url: str, ada: User, bob: User) -> None:
    key = key_of(ada)
    assert "1 to 20,000" in text_of(call_tool(url, key, "append_note", text="x" * 20_001))
    theirs = str(create_chat(bob, "Bob's.").pk)
    assert "no such session" in text_of(call_tool(url, key, "append_note", text="Hm.", session=theirs))
    assert "records in mode" in text_of(call_tool(url, key_of(ada, recording="metadata"), "append_note", text="Hm."))
    assert not Session.objects.filter(owner=ada, version__gt=0).exists()


def test_wrong_arguments_and_unknown_tools_are_results_that_say_so(url: str, ada: User) -> None:
    key = key_of(ada)
    for name, arguments, words in (
        ("search_history", {"words": "x"}, "query is missing"),
        ("read_session", {"session": "x", "limit": "many"}, "limit must be a whole number"),
        ("drop_tables", {}, "There is no tool drop_tables"),
    ):
        result = call_tool(url, key, name, **arguments)
        assert result.is_error
        assert words in text_of(result)


def posted(url: str, body: object = None, *, method: str = "POST", **headers: str) -> tuple[int, str]:
    """Without a client that knows the protocol: the status, and what was answered."""
    sent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    request = Request(
        f"{url}/mcp", data=None if body is None else json.dumps(body).encode(), headers=sent, method=method
    )
    try:
        with urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def refused_unread(url: str, *, length: int, bearer: str) -> int:
    """The status if a body is announced and not sent: a client that sends all of it may not read the refusal."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=10)
    connection.putrequest("POST", "/mcp")
    for name, value in (("authorization", bearer), ("content-type", "application/json"), ("content-length", length)):
        connection.putheader(name, str(value))
    connection.endheaders()
    with closing(connection):
        return connection.getresponse().status


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


def test_unauthorised_calls_are_refused_before_the_protocol_begins(url: str, ada: User) -> None:
    key = key_of(ada)
    bearer = f"Bearer {key}"
    assert posted(url, LIST, authorization=bearer)[0] == 200
    assert posted(url, LIST)[0] == 401
    assert posted(url, LIST, authorization=bearer[:-1] + "!")[0] == 401
    assert posted(url, LIST, authorization=f"Bearer {key_of(ada, scopes=('relay',))}")[0] == 403
    assert posted(url, LIST, authorization=bearer, host="evil.example")[0] == 421
    assert posted(url, LIST, authorization=bearer, origin="https://evil.example")[0] == 403
    assert posted(url, LIST, authorization=bearer, origin=url)[0] == 200
    assert posted(url, method="GET", authorization=bearer)[0] == 405
    assert refused_unread(url, length=1_100_000, bearer=bearer) == 413
    keys.revoke(ApiKey.objects.get(prefix=key.split("_")[1]), actor=None)
    assert posted(url, LIST, authorization=bearer)[0] == 401


def test_only_pages_of_our_own_origin_may_call(url: str, ada: User) -> None:
    """Scheme, host and port are compared, as for sockets."""
    bearer = f"Bearer {key_of(ada)}"
    own, port = urlsplit(url).netloc, urlsplit(url).port
    for origin in (f"https://{own}", f"http://localhost:{port + 1}", f"ftp://{own}", f"//{own}", "null", "", f"{url}/"):  # type: ignore[operator]
        assert posted(url, LIST, authorization=bearer, origin=origin)[0] == 403, origin
    assert posted(url, LIST, authorization=bearer, origin=url.upper())[0] == 200


def test_so_many_requests_a_minute_and_no_more(url: str, ada: User, settings: Any) -> None:
    settings.PARLEY_API_REQUESTS_PER_MINUTE = 1
    bearer = f"Bearer {key_of(ada)}"
    answers = [posted(url, LIST, authorization=bearer)[0] for _ in range(3)]
    assert answers.count(429) >= 1


def test_a_large_body_is_parsed_beside_the_event_loop(url: str, ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[tuple[int, str]] = []
    parser = importlib.import_module("pydantic_core")  # the SDK's
    from_json = parser.from_json

    def note_thread(body: bytes, **options: Any) -> Any:
        threads.append((len(body), threading.current_thread().name))
        return from_json(body, **options)

    monkeypatch.setattr(parser, "from_json", note_thread)
    for size in (10, 200_000):
        called = {"name": "search_history", "arguments": {"query": "x" * size}}
        body = {**LIST, "method": "tools/call", "params": called}
        status, answer = posted(url, body, authorization=f"Bearer {key_of(ada)}")
        assert (status, "result" in json.loads(answer)) == (200, True), answer
    [small, large] = threads
    assert (small[1], large[0] > 200_000) == ("mcp", True), "the thread of the server's event loop has this name"
    assert large[1].startswith("mcp_"), "a thread of the pool for large bodies"
