"""Branches of a session that was trimmed: what still holds below the anchor holds on every path that begins there."""

from __future__ import annotations

from typing import Any

import pytest

from history import retention, verification
from history.entries import SystemInstructionSet
from history.models import Session
from history.record import recorder, selectors
from tests.factories import create_chat, model_input, model_output

pytestmark = pytest.mark.django_db


@pytest.fixture
def trimmed(ada: Any, settings: Any) -> Session:
    """An instruction, old turns that were trimmed, and two branches that hang on the anchor."""
    settings.CHAT_HISTORY_MAX_MESSAGES = 4
    session = recorder.start_session(owner=ada, source="relay")
    recorder.append(session, SystemInstructionSet(instruction="be kind"), after=0)
    recorder.append_many(session, [model_input("old"), model_output("old too")], after=1)
    recorder.append_many(session, [model_input("one"), model_output("first")], after=3)
    recorder.move_head(session, to=3)
    recorder.append_many(session, [model_input("two"), model_output("second")], after=3)
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.trimmed_through == 3
    return session


def contents(session: Session, **where: Any) -> list[str]:
    return [message.content for message in selectors.messages_of(session, **where).messages if not message.is_state]


def test_both_branches_keep_the_instruction(trimmed: Session) -> None:
    assert selectors.snapshot(trimmed).system_instruction == "be kind"
    assert selectors.snapshot(trimmed, leaf=5).system_instruction == "be kind"
    assert contents(trimmed, leaf=5) == ["one", "first"]


def test_moving_to_the_other_branch_and_back_loses_nothing(trimmed: Session) -> None:
    here = trimmed.head
    recorder.move_head(trimmed, to=5, reason="switch")
    assert (contents(trimmed), selectors.snapshot(trimmed).system_instruction) == (["one", "first"], "be kind")
    recorder.move_head(trimmed, to=here, reason="switch")
    assert (contents(trimmed), selectors.snapshot(trimmed).system_instruction) == (["two", "second"], "be kind")
    assert [finding for finding in verification.verify() if finding.is_damage] == []


def test_a_session_begun_anew_after_a_trim_can_go_back_to_what_holds(trimmed: Session) -> None:
    here = trimmed.head
    recorder.move_head(trimmed, to=0)
    recorder.append(trimmed, model_input("anew"), after=0)
    assert (contents(trimmed), selectors.snapshot(trimmed).system_instruction) == (["anew"], "")
    recorder.move_head(trimmed, to=here, reason="switch")
    assert (contents(trimmed), selectors.snapshot(trimmed).system_instruction) == (["two", "second"], "be kind")
    assert list(verification.verify()) == []


def test_an_import_is_kept_from_the_day_of_import(ada: Any, settings: Any) -> None:
    from datetime import timedelta

    from django.utils import timezone

    settings.PARLEY_IMPORT_TTL_DAYS = 10
    years_ago = timezone.now() - timedelta(days=900)
    session = recorder.start_session(owner=ada, source="import", created_at=years_ago)
    recorder.append(session, model_input("long ago", at=years_ago), after=0)
    assert session.last_activity_at == years_ago
    retention.purge(dry_run=False)
    assert Session.objects.filter(pk=session.pk).exists()
    settings.PARLEY_IMPORT_TTL_DAYS = 20
    retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.expires_at is not None
    assert session.expires_at - session.stored_at == timedelta(days=20)
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=21))
    assert not Session.objects.filter(pk=session.pk).exists()
    assert create_chat(ada, "another").expires_at is None
