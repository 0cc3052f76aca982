"""Who may do what with which sessions: the whole table, and that every way to ask it gives the same answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, Permission
from django.db import connection
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from history.access import permissions
from history.access.permissions import Purpose
from history.models import ApiKey, Message, Session
from history.search import search
from tests.factories import create_chat

pytestmark = pytest.mark.django_db

LETTERS = {
    "L": Purpose.LIST, "R": Purpose.READ, "W": Purpose.WRITE,
    "E": Purpose.EXPORT, "D": Purpose.DELETE, "H": Purpose.HOLD,
}  # fmt: skip


def key_of(owner: Any, **fields: Any) -> ApiKey:
    return ApiKey.objects.create(name="k", prefix=uuid4().hex[:16], secret_hash=b"x", owner=owner, **fields)


def with_right(user: Any, *names: str) -> Any:
    user.user_permissions.set(Permission.objects.filter(codename__in=names, content_type__app_label="history"))
    return type(user).objects.get(pk=user.pk)


def allowed(viewer: Any, session: Session) -> str:
    """The letters of what they may do; asked in every way that there is."""
    found = ""
    for letter, purpose in LETTERS.items():
        answers = {
            permissions.can_access(viewer, purpose, session),
            session in permissions.sessions_for(viewer, purpose),
            permissions.find(viewer, session.pk, purpose) == session,
            session.pk in by_hand(viewer, purpose),
            permissions.rows_for(viewer, purpose, Message.objects.filter(session=session)).exists(),
        }
        assert len(answers) == 1, f"{purpose} is answered in two ways"
        found += letter if answers.pop() else ""
    return found


def by_hand(viewer: Any, purpose: Purpose) -> set[Any]:
    rule = permissions.sql_for(viewer, purpose, ("id",))
    if rule is None:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(*rule)
        field = Session._meta.pk
        convert = connection.ops.get_db_converters(field.get_col("history_session"))
        values = [row[0] for row in cursor.fetchall()]
    for one in convert:
        values = [one(value, None, connection) for value in values]
    return set(values)


def shown(ada: Any) -> Session:
    return create_chat(ada, "plain")


def hidden(ada: Any) -> Session:
    return _changed(create_chat(ada, "gone"), state=Session.State.DELETED, hidden_at=timezone.now())


def held(ada: Any) -> Session:
    return _changed(create_chat(ada, "held"), hold=True, expires_at=timezone.now() - timedelta(days=1))


def held_hidden(ada: Any) -> Session:
    return _changed(create_chat(ada, "held and gone"), hold=True, state=Session.State.DELETED, hidden_at=timezone.now())


def expired(ada: Any) -> Session:
    return _changed(create_chat(ada, "old"), expires_at=timezone.now() - timedelta(seconds=1))


def _changed(session: Session, **fields: Any) -> Session:
    Session.objects.filter(pk=session.pk).update(**fields)
    return Session.objects.get(pk=session.pk)


SESSIONS: list[Callable[[Any], Session]] = [shown, hidden, held, held_hidden, expired]

# Rights of a member of the staff over Ada's sessions → what they may do with each of those above.
STAFF = {
    "": ("", "", "", "", ""),
    "view": ("L", "", "L", "", ""),
    "read": ("", "", "", "", ""),  # every right needs view_session too
    "view read": ("LR", "", "LR", "", ""),
    "view export": ("LE", "", "LE", "", ""),
    "view delete": ("LD", "", "LD", "", ""),
    "view hold": ("LH", "", "LH", "LH", ""),
    "hold": ("", "", "", "", ""),
    "view read hold": ("LRH", "", "LRH", "LRH", ""),
    "view read export delete hold": ("LREDH", "", "LREDH", "LREDH", ""),
}


@pytest.mark.parametrize("names", STAFF)
def test_staff_have_one_right_for_each_purpose(ada: Any, staff: Any, names: str) -> None:
    viewer = with_right(staff, *(f"{name}_session" for name in names.split()))
    assert tuple(allowed(viewer, make(ada)) for make in SESSIONS) == STAFF[names]


def test_users_have_their_own_sessions_but_cannot_hold_or_see_removed_ones(ada: Any) -> None:
    assert [allowed(ada, make(ada)) for make in SESSIONS] == ["LRWED", "", "LRWED", "", ""]


def test_visitors_and_non_staff_have_nothing_with_any_permission(ada: Any, bob: Any) -> None:
    everything = with_right(bob, *(f"{name}_session" for name in ("view", "read", "export", "delete", "hold")))
    for viewer in (bob, everything, AnonymousUser()):
        assert [allowed(viewer, make(ada)) for make in SESSIONS] == [""] * 5


def test_staff_have_their_own_sessions_and_hold_them_with_the_permission(staff: Any) -> None:
    assert allowed(staff, create_chat(staff, "mine")) == "LRWED"
    holder = with_right(staff, "view_session", "hold_session")
    assert allowed(holder, create_chat(staff, "mine")) == "LRWEDH"
    assert allowed(holder, held_hidden(staff)) == "LREDH"


def test_a_superuser_has_every_right_but_to_speak_for_others(ada: Any, admin_user: Any) -> None:
    assert [allowed(admin_user, make(ada)) for make in SESSIONS] == ["LREDH", "", "LREDH", "LREDH", ""]


KEYS = {
    "": "",
    "relay": "",
    "read": "LR",
    "write": "W",
    "export": "E",
    "delete": "D",
    "read write export delete": "LRWED",
}


@pytest.mark.parametrize("scopes", KEYS)
def test_a_key_needs_a_scope_for_each_purpose(ada: Any, scopes: str) -> None:
    key = key_of(ada, scopes=scopes.split())
    own = create_chat(ada, "by a program", api_key=key, source="relay")
    assert allowed(key, own) == KEYS[scopes]
    assert allowed(key, shown(ada)) == ""


def test_a_key_reaches_its_own_sessions_or_its_owners_or_as_an_admin_of_staff_everything(
    ada: Any, bob: Any, staff: Any
) -> None:
    every = ["read", "write", "export", "delete", "admin"]
    own, other = key_of(ada, scopes=["read"]), key_of(ada, scopes=["read"])
    wide, admin = key_of(ada, scopes=["read"], owner_wide=True), key_of(staff, scopes=every)
    session = create_chat(ada, "by a program", api_key=own, source="relay")
    assert [allowed(key, session) for key in (own, other, wide, admin)] == ["LR", "", "LR", "LREDH"]
    assert [allowed(key, shown(ada)) for key in (own, other, wide, admin)] == ["", "", "LR", "LREDH"]
    assert allowed(wide, shown(bob)) == ""
    assert allowed(admin, shown(staff)) == "LRWEDH"
    assert allowed(key_of(bob, scopes=every), session) == "", "an admin key is worth what its owner is"


def test_no_key_sees_what_is_hidden_under_hold_or_expired(ada: Any, admin_user: Any) -> None:
    admin = key_of(admin_user, scopes=["read", "export", "delete", "admin"])
    assert [allowed(admin, make(ada)) for make in (hidden, held_hidden, expired)] == ["", "", ""]


# Search finds texts, so it asks for READ.


def test_search_finds_what_may_be_read_and_not_what_may_only_be_listed(ada: Any, staff: Any) -> None:
    session = create_chat(ada, "the loom is broken")
    create_chat(staff, "my own loom")
    found = {right: [hit.session_id for hit in search(with_right(staff, *right), "broken loom").hits] for right in (
        ("view_session",), ("read_session",), ("view_session", "read_session"),
    )}  # fmt: skip
    assert list(found.values()) == [[], [], [session.pk]]
    assert len(search(with_right(staff, "view_session"), "loom").hits) == 1
    assert search(key_of(ada, scopes=["write"], owner_wide=True), "loom").hits == ()
    assert len(search(key_of(ada, scopes=["read"], owner_wide=True), "loom").hits) == 1


def test_what_is_hidden_under_hold_is_found_by_those_who_hold_and_read(ada: Any, staff: Any) -> None:
    held_hidden(ada)
    assert not search(with_right(staff, "view_session", "read_session"), "held").hits
    assert search(with_right(staff, "view_session", "read_session", "hold_session"), "held").hits


# What it costs.


def test_a_list_is_one_query(ada: Any, staff: Any, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    viewer = with_right(staff, "view_session", "hold_session")
    assert viewer.has_perm("history.view_session")  # from here on Django remembers
    for _ in range(3):
        shown(ada)
    with django_assert_num_queries(1):
        assert len(permissions.sessions_for(viewer, Purpose.LIST)) == 3


@pytest.mark.parametrize("name", ["", "nonsense", "../etc/passwd", "61870452-4b6e-4476-9dfd-38edb604d4c6", "a\0b"])
def test_what_is_no_session_is_none(ada: Any, name: str) -> None:
    assert permissions.find(ada, name, Purpose.LIST) is None


def test_a_session_is_found_by_its_id_as_text(ada: Any) -> None:
    session = create_chat(ada, "hello")
    assert permissions.find(ada, str(session.pk), Purpose.LIST) == session
