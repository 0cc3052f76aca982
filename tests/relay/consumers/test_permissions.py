"""Sessions of another user over the sockets: for programs with a reason, never for pages."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.conf import settings as live_settings
from django.contrib.auth.models import Permission

from history.access import keys
from history.models import AuditEvent, Session
from project.accounts.models import User
from relay.live import groups
from relay.runtime.async_db import in_database
from tests.factories import create_chat, without_guards
from tests.relay.conftest import Talk
from tests.relay.consumers.test_page_socket import cookie_of, open_page
from tests.relay.consumers.test_program_socket import Program, connect, key_for


async def said_by(ada: User) -> Session:
    return await in_database(create_chat, ada, "the secret", "the answer")


async def with_key(user: User, *scopes: str) -> Program:
    program, is_open = await connect(await in_database(key_for, user, *scopes))
    assert is_open
    return program


async def with_cookie(user: User) -> Program:
    cookie = f"{live_settings.SESSION_COOKIE_NAME}={await in_database(cookie_of, user)}"
    program, is_open = await connect(cookie=cookie, origin="http://localhost", host="localhost")
    assert is_open
    return program


def give(user: User, names: tuple[str, ...]) -> User:
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    return User.objects.get(pk=user.pk)


async def test_an_admin_key_says_why_before_it_is_told_anything(talk: Talk, ada: User, staff: User) -> None:
    session = str((await said_by(ada)).pk)
    program = await with_key(staff, "read", "admin")
    for command in ("history", "open"):
        assert (await program.request(command, session=session))["code"] == "reason_needed"
    told = await program.request("history", session=session, reason="nightly audit")
    assert [message["content"] for message in told["messages"]] == ["the secret", "the answer"]
    assert (await program.request("open", session=session))["type"] == "open"
    assert await in_database(lambda: AuditEvent.objects.get(action="session.read").reason) == "nightly audit"
    await program.socket.disconnect(timeout=10)


async def test_no_key_continues_or_deletes_another_users_session(talk: Talk, ada: User, staff: User) -> None:
    session = str((await said_by(ada)).pk)
    program = await with_key(staff, "read", "write", "delete", "admin")
    for command in ("send", "rename", "delete", "stop", "fork"):
        told = await program.request(command, session=session, text="x", title="x", reason="because")
        assert told["code"] == "no_such_session", command
    await program.socket.disconnect(timeout=10)


STAFF: list[tuple[tuple[str, ...], str]] = [
    ((), "no_such_session"),
    (("view_session",), "not_permitted"),
    (("view_session", "read_session"), "reason_needed"),
]


@pytest.mark.parametrize(("rights", "code"), STAFF)
async def test_staff_are_answered_by_their_rights_and_their_page_has_no_socket(
    talk: Talk, ada: User, staff: User, rights: tuple[str, ...], code: str
) -> None:
    session, user = await said_by(ada), await in_database(give, staff, rights)
    page, _ = await open_page(user, session)
    assert await page.close_code() == 4404
    program = await with_cookie(user)
    assert (await program.request("history", session=str(session.pk)))["code"] == code
    assert (await program.request("list"))["sessions"] == []
    await program.socket.disconnect(timeout=10)


def demoted(staff: User) -> None:
    User.objects.filter(pk=staff.pk).update(is_staff=False)


def without_the_right(staff: User) -> None:
    staff.user_permissions.remove(Permission.objects.get(codename="read_session"))


def an_hour_later(staff: User) -> None:
    event = AuditEvent.objects.get(action="session.read")
    without_guards(AuditEvent.objects.filter(pk=event.pk)).update(at=event.at - timedelta(hours=2))


ENDS: list[tuple[Callable[[User], None], str]] = [
    (demoted, "no_such_session"),
    (without_the_right, "not_permitted"),
    (an_hour_later, "reason_needed"),
]


@pytest.mark.parametrize(("end", "code"), ENDS)
async def test_an_open_socket_reads_no_longer_than_its_reader_may(
    talk: Talk, ada: User, staff: User, end: Callable[[User], None], code: str
) -> None:
    session, user = await said_by(ada), await in_database(give, staff, ("view_session", "read_session"))
    program = await with_cookie(user)
    assert (await program.request("open", session=str(session.pk), reason="a complaint"))["type"] == "open"
    await in_database(end, user)
    frame = {
        "type": "run.frame",
        "run": str(uuid4()),
        "n": 1,
        "kind": "pieces",
        "pieces": [["text", "1", "a live word"]],
    }
    groups.send_to_session(session.pk, frame)
    assert (await program.event("error"))["code"] == code
    groups.send_to_session(session.pk, {**frame, "run": str(uuid4())})
    assert (await program.request("history", session=str(session.pk)))["code"] == code
    assert "a live word" not in str(program.frames)
    await program.socket.disconnect(timeout=10)


async def test_a_revoked_key_is_told_nothing_more(talk: Talk, ada: User) -> None:
    session = await said_by(ada)
    program = await with_key(ada, "read")
    key = await in_database(lambda: ada.api_keys.get())
    await in_database(Session.objects.filter(pk=session.pk).update, api_key=key)
    assert (await program.request("open", session=str(session.pk)))["type"] == "open"
    await in_database(keys.revoke, key, actor=ada)
    frame = {
        "type": "run.frame",
        "run": str(uuid4()),
        "n": 1,
        "kind": "pieces",
        "pieces": [["text", "1", "a live word"]],
    }
    groups.send_to_session(session.pk, frame)
    while (told := await program.socket.receive_output(timeout=10))["type"] != "websocket.close":
        assert "a live word" not in str(told)
    assert told["code"] == 4401
