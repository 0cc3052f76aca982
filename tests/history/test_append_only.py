"""Stored rows are changed by the one writer and removed by the one deleter: every other way is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ObjectDoesNotExist

from history import audit, exchanges, recorder, retention
from history.append_only import ImmutableError
from history.models import AuditEvent, Blob, Exchange, Message, Session, ToolCall
from tests.talk import answered, call, chat_of

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[2]
KEPT = (Session, Message, ToolCall, Exchange, Blob, AuditEvent)
APPEND_ONLY = (Message, ToolCall, AuditEvent)


@pytest.fixture
def session(ada: Any) -> Session:
    """A row in every table of the record."""
    session = chat_of(ada, "hello")
    recorder.append(session, answered("x" * 70_000, call("a")), after=1)
    exchanges.open_exchange(session, owner=ada)
    audit.record("read", session=session.pk)
    return session


def first(model: Any) -> Any:
    return model.objects.order_by("pk").first()


@pytest.mark.parametrize("model", KEPT)
@pytest.mark.parametrize(
    "remove",
    [
        lambda model: model.objects.all().delete(),
        lambda model: model.objects.filter(pk=first(model).pk).delete(),
        lambda model: model._base_manager.all().delete(),
        lambda model: first(model).delete(),
    ],
)
def test_deleting_outside_the_deleter_is_refused(session: Session, model: Any, remove: Callable[[Any], Any]) -> None:
    before = model.objects.count()
    assert before
    with pytest.raises(ImmutableError):
        remove(model)
    assert model.objects.count() == before


@pytest.mark.parametrize("model", APPEND_ONLY)
@pytest.mark.parametrize(
    "change",
    [
        lambda model, row: model.objects.update(session=row.session),
        lambda model, row: model.objects.filter(pk=row.pk).update(session=row.session),
        lambda model, row: model.objects.bulk_update([row], ["session"]),
        lambda model, row: model.objects.bulk_create([row], update_conflicts=True, update_fields=["session"]),
        lambda model, row: model._base_manager.update(session=row.session),
        lambda model, row: model.objects.update_or_create(pk=row.pk, defaults={"session": row.session}),
        lambda model, row: row.save(),
        lambda model, row: row.save(update_fields=["session"]),
    ],
)
def test_changing_a_stored_row_is_refused(session: Session, model: Any, change: Callable[[Any, Any], Any]) -> None:
    before = list(model.objects.order_by("pk").values())
    with pytest.raises(ImmutableError):
        change(model, first(model))
    assert list(model.objects.order_by("pk").values()) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda session: session.messages.all().delete(),
        lambda session: session.messages.update(content="something else"),
        lambda session: session.tool_calls.filter(index=0).update(name="x"),
        lambda session: session.messages.add(Message.objects.exclude(session=session).get()),
    ],
)
def test_the_way_through_a_session_is_refused_too(ada: Any, session: Session, change: Callable[[Any], Any]) -> None:
    chat_of(ada, "of another session")
    with pytest.raises(ImmutableError):
        change(session)
    assert Message.objects.filter(session=session).count() == 2


def test_the_deleter_has_its_own_way(ada: Any, session: Session) -> None:
    retention.erase(session, actor=ada, reason="asked to")
    with pytest.raises(ObjectDoesNotExist):
        session.refresh_from_db()
    assert not Message.objects.exists()


def test_the_guard_is_lifted_in_few_modules_only() -> None:
    """The writer, the deleter, and the repair of projections."""
    source = [path for app in ("history", "relay", "project") for path in (ROOT / app).rglob("*.py")]
    lifted = {_name(path) for path in source if re.search(r"\bwritable\(", path.read_text("utf-8"))}
    assert lifted == {
        "history/append_only.py",
        "history/formats/jsonl/laying.py",
        "history/retention/dropping.py",
        "history/storage.py",
        "history/verification/rebuilding.py",
    }
    assert {_name(path) for path in source if "_raw_delete(" in path.read_text("utf-8")} == {
        "history/retention/leftovers.py",
        "history/retention/removal.py",
        "history/verification/rebuilding.py",
    }


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
