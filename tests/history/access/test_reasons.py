"""Reasons for reading another user's session: stored in the audit chain, valid for an hour."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from history.access import audit, reasons
from history.access.permissions import Purpose
from history.access.reasons import (
    NotPermitted,
    ReasonNeeded,
    find_opened,
    open_each,
    open_for_reading,
    readable_without_reason,
)
from history.models import AuditEvent
from tests.factories import create_chat, without_guards
from tests.history.access.test_permissions import key_of, with_right

pytestmark = pytest.mark.django_db


@pytest.fixture
def auditor(staff: Any) -> Any:
    return with_right(staff, "view_session", "read_session")


def an_hour_later() -> None:
    """The events of now lie an hour back; their seals do not matter here."""
    without_guards(AuditEvent.objects.all()).update(at=timezone.now() - reasons.HOLDS_FOR - timedelta(seconds=1))


def events() -> list[tuple[str, int | None, int | None, Any, str]]:
    fields = ("action", "actor", "key", "session", "reason")
    return list(AuditEvent.objects.order_by("seq").values_list(*fields))


def test_ones_own_needs_no_reason_and_leaves_no_trace(ada: Any) -> None:
    session = create_chat(ada, "mine")
    open_for_reading(ada, session)
    open_for_reading(ada, session, reason="because", purpose=Purpose.EXPORT)
    open_for_reading(key_of(ada, scopes=["read"], owner_wide=True), session)
    assert events() == []


def test_without_a_reason_it_stays_shut(ada: Any, auditor: Any) -> None:
    with pytest.raises(ReasonNeeded):
        open_for_reading(auditor, create_chat(ada, "secret"))
    assert events() == []


def test_a_reason_is_kept_in_the_chain_and_holds_for_an_hour(ada: Any, auditor: Any) -> None:
    session = create_chat(ada, "secret")
    open_for_reading(auditor, session, reason="  ticket 7  ")
    assert events() == [("session.read", auditor.pk, None, session.pk, "ticket 7")]
    assert list(audit.flaws()) == []
    open_for_reading(auditor, session)
    an_hour_later()
    with pytest.raises(ReasonNeeded):
        open_for_reading(auditor, session)


@pytest.mark.parametrize("reason", ["", "  ", "x", " ab ", "x" * 501])
def test_a_reason_has_three_to_five_hundred_characters(ada: Any, auditor: Any, reason: str) -> None:
    with pytest.raises(ReasonNeeded):
        open_for_reading(auditor, create_chat(ada, "secret"), reason=reason)
    assert events() == []


def test_a_reason_holds_for_that_reader_and_that_session_alone(ada: Any, auditor: Any, admin_user: Any) -> None:
    session, other = create_chat(ada, "secret"), create_chat(ada, "another")
    open_for_reading(auditor, session, reason="ticket 7")
    for viewer, what in ((auditor, other), (admin_user, session), (key_of(auditor, scopes=["read", "admin"]), session)):
        with pytest.raises(ReasonNeeded):
            open_for_reading(viewer, what)
    assert readable_without_reason(auditor, [session.pk, other.pk]) == {session.pk}
    assert readable_without_reason(admin_user, [session.pk, other.pk]) == set()


def test_who_exported_may_read_but_who_read_may_not_export(ada: Any, staff: Any) -> None:
    viewer = with_right(staff, "view_session", "read_session", "export_session")
    session = create_chat(ada, "secret")
    open_for_reading(viewer, session, reason="ticket 7")
    with pytest.raises(ReasonNeeded):
        open_for_reading(viewer, session, purpose=Purpose.EXPORT)
    without_guards(AuditEvent.objects.all()).delete()
    open_for_reading(viewer, session, reason="ticket 8", purpose=Purpose.EXPORT)
    open_for_reading(viewer, session)
    assert [event[0] for event in events()] == ["session.exported"]


def test_a_reason_does_not_replace_the_right(ada: Any, bob: Any, staff: Any) -> None:
    session = create_chat(ada, "secret")
    for viewer in (bob, with_right(staff, "view_session")):
        with pytest.raises(NotPermitted):
            open_for_reading(viewer, session, reason="I am curious")
    assert find_opened(bob, session.pk, reason="I am curious") is None
    with pytest.raises(NotPermitted):
        find_opened(with_right(staff, "view_session"), session.pk, reason="I am curious")
    assert events() == []


def test_an_admin_key_says_why_as_well(ada: Any, staff: Any) -> None:
    session, key = create_chat(ada, "secret"), key_of(staff, scopes=["read", "admin"])
    with pytest.raises(ReasonNeeded):
        find_opened(key, str(session.pk))
    assert find_opened(key, str(session.pk), reason="nightly audit") == session
    assert events() == [("session.read", None, key.pk, session.pk, "nightly audit")]
    assert find_opened(key, str(session.pk)) == session


def test_several_are_opened_for_one_reason_all_or_none(ada: Any, auditor: Any) -> None:
    mine, first, second = create_chat(auditor, "mine"), create_chat(ada, "one"), create_chat(ada, "two")
    open_for_reading(auditor, first, reason="ticket 7")
    with pytest.raises(ReasonNeeded):
        open_each(auditor, [mine, first, second])
    open_each(auditor, [mine, first, second], reason="ticket 8")
    assert [event[3:] for event in events()[1:]] == [(first.pk, "ticket 8"), (second.pk, "ticket 8")]
    assert readable_without_reason(auditor, [mine.pk, first.pk, second.pk]) == {mine.pk, first.pk, second.pk}
    assert list(audit.flaws()) == []
