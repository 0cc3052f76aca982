"""The audit trail: a chain of its own, of ids instead of names, that shows what was altered."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction

from history.access import audit
from history.models import AuditEvent
from tests.factories import without_guards

pytestmark = pytest.mark.django_db


def three_events() -> None:
    for action in ("export", "hold", "purge"):
        audit.record(action, actor=1, session=uuid4(), reason="asked", count=3)


def flaws() -> list[tuple[int, str]]:
    return [(flaw.seq, flaw.problem) for flaw in audit.flaws()]


def test_events_are_numbered_from_one_and_say_who_what_and_why() -> None:
    session = uuid4()
    first = audit.record("export", actor=7, key=9, session=session, reason="court\0 order", format="markdown", count=3)
    second = audit.record("purge")
    assert (first.seq, second.seq) == (1, 2)
    stored = AuditEvent.objects.get(seq=1)
    assert (stored.action, stored.actor, stored.key, stored.session) == ("export", 7, 9, session)
    assert (stored.reason, json.loads(stored.details)) == ("court� order", {"format": "markdown", "count": 3})


def test_an_event_outlives_what_it_speaks_of(ada: Any) -> None:
    audit.record("erase", actor=ada.pk)
    number = ada.pk
    ada.delete()
    assert AuditEvent.objects.get().actor == number


def test_a_healthy_trail_has_no_flaws() -> None:
    assert flaws() == []
    three_events()
    assert flaws() == []


@pytest.mark.parametrize(
    "change",
    [
        {"action": "read"},
        {"actor": 2},
        {"actor": None},
        {"key": 1},
        {"session": None},
        {"reason": ""},
        {"details": "{}"},
    ],
)
def test_an_altered_event_is_named(change: dict[str, Any]) -> None:
    three_events()
    without_guards(AuditEvent.objects.filter(seq=2)).update(**change)
    assert flaws() == [(2, "altered")]


def test_words_moved_from_one_column_to_another_are_seen() -> None:
    audit.record("hold", reason="a\x1fb")
    without_guards(AuditEvent.objects.all()).update(reason="a", details="b\x1f")
    assert flaws() == [(1, "altered")]


def test_a_missing_event_is_named() -> None:
    three_events()
    without_guards(AuditEvent.objects.filter(seq=2)).delete()
    assert flaws() == [(2, "missing")]
    without_guards(AuditEvent.objects.filter(seq=1)).delete()
    assert flaws() == [(1, "missing")]


def test_an_event_goes_with_the_transaction_it_was_written_in() -> None:
    audit.record("export")
    with transaction.atomic():
        audit.record("purge")
        transaction.set_rollback(True)
    assert [event.action for event in AuditEvent.objects.all()] == ["export"]
    assert audit.record("hold").seq == 2
    assert flaws() == []
