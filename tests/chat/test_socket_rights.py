"""Somebody else's conversation over the sockets: for programs with a reason, for pages not at all."""

from __future__ import annotations

import pytest
from django.conf import settings as live_settings
from django.contrib.auth.models import Permission

from history.models import AuditEvent, Session
from project.accounts.models import User
from relay.database import in_database
from tests.chat.conftest import Talk
from tests.chat.test_page_socket import cookie_of, open_page
from tests.chat.test_program_socket import Program, connect, key_for
from tests.talk import chat_of


async def said_by(ada: User) -> Session:
    return await in_database(chat_of, ada, "the secret", "the answer")


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
        assert (await program.ask(command, session=session))["code"] == "reason_needed"
    told = await program.ask("history", session=session, reason="nightly audit")
    assert [message["content"] for message in told["messages"]] == ["the secret", "the answer"]
    assert (await program.ask("open", session=session))["type"] == "open"
    assert await in_database(lambda: AuditEvent.objects.get(action="session.read").reason) == "nightly audit"
    await program.socket.disconnect()


async def test_no_key_goes_on_with_or_deletes_somebody_elses_session_here(talk: Talk, ada: User, staff: User) -> None:
    session = str((await said_by(ada)).pk)
    program = await with_key(staff, "read", "write", "delete", "admin")
    for command in ("send", "rename", "delete", "stop", "fork"):
        told = await program.ask(command, session=session, text="x", title="x", reason="because")
        assert told["code"] == "no_such_session", command
    await program.socket.disconnect()


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
    _, is_open = await open_page(user, session)
    assert not is_open
    program = await with_cookie(user)
    assert (await program.ask("history", session=str(session.pk)))["code"] == code
    assert (await program.ask("list"))["sessions"] == []
    await program.socket.disconnect()
