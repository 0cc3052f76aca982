"""Stored rows are changed by the one writer and removed by the one deleter: every other way is refused."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.admin.actions import delete_selected
from django.core import serializers
from django.core.exceptions import ObjectDoesNotExist, PermissionDenied
from django.db import transaction
from django.db.models import Manager, Model, ProtectedError
from django.db.models.deletion import Collector

from history import retention
from history.access import audit
from history.models import AuditEvent, Blob, Exchange, Message, Session, ToolCall
from history.models.append_only import ImmutableError
from history.record import exchanges, recorder
from tests.factories import create_chat, model_output, tool_request

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[3]
KEPT = (Session, Message, ToolCall, Exchange, Blob, AuditEvent)
APPEND_ONLY = (Message, ToolCall, AuditEvent)


@pytest.fixture
def session(ada: Any) -> Session:
    """A row in every table of the record."""
    session = create_chat(ada, "hello")
    recorder.append(session, model_output("x" * 70_000, tool_request("a")), after=1)
    exchanges.open_exchange(session, owner=ada)
    audit.record("read", session=session.pk)
    return session


def raw(model: Any) -> Any:
    """A manager that knows no guard."""
    manager: Any = Manager()
    manager.model = model
    return manager.all()


def collect(model: Any, rows: Any) -> None:
    collector = Collector(using="default", origin=rows)
    collector.collect(rows)
    collector.delete()


def values_of(row: Any) -> dict[str, Any]:
    return {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}


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
        lambda model: model.objects.all()._raw_delete("default"),
        lambda model: model._default_manager.all()._raw_delete("default"),
        lambda model: async_to_sync(model.objects.all().adelete)(),
        lambda model: async_to_sync(first(model).adelete)(),
        lambda model: collect(model, list(model.objects.all())),
        lambda model: collect(model, raw(model)),
        lambda model: raw(model).delete(),
        lambda model: raw(model).filter(pk=first(model).pk).delete(),
        lambda model: Model.delete(first(model)),
    ],
)
def test_deleting_outside_the_deleter_is_refused(session: Session, model: Any, remove: Callable[[Any], Any]) -> None:
    before = model.objects.count()
    assert before
    with pytest.raises(ImmutableError), transaction.atomic():
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
        lambda model, row: model.objects.bulk_create([row], None, False, True, ["session"], ["id"]),
        lambda model, row: async_to_sync(model.objects.aupdate)(session=row.session),
        lambda model, row: async_to_sync(model.objects.abulk_update)([row], ["session"]),
        lambda model, row: async_to_sync(model.objects.aupdate_or_create)(pk=row.pk, defaults={"session": row.session}),
        lambda model, row: async_to_sync(row.asave)(),
        lambda model, row: model(**values_of(row)).save(),
        lambda model, row: model(**values_of(row)).save(force_update=True),
        lambda model, row: row.save_base(),
        lambda model, row: row.save_base(raw=True),
        lambda model, row: next(serializers.deserialize("json", serializers.serialize("json", [row]))).save(),
        lambda model, row: model.objects.filter(pk=row.pk)._update([]),
        lambda model, row: model.objects.select_for_update().filter(pk=row.pk).order_by("pk").update(session=None),
    ],
)
def test_changing_a_stored_row_is_refused(session: Session, model: Any, change: Callable[[Any, Any], Any]) -> None:
    before = list(model.objects.order_by("pk").values())
    with pytest.raises(ImmutableError), transaction.atomic():
        change(model, first(model))
    assert list(model.objects.order_by("pk").values()) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda session: session.messages.all().delete(),
        lambda session: session.messages.update(content="something else"),
        lambda session: session.tool_calls.filter(index=0).update(name="x"),
        lambda session: session.messages.add(Message.objects.exclude(session=session).get()),
        lambda session: session.messages.update_or_create(seq=1, defaults={"content": "x"}),
        lambda session: session.messages.bulk_update(list(session.messages.all()), ["content"]),
        lambda session: session.messages.get(seq=2).tool_calls.all().delete(),
        lambda session: session.messages.get(seq=2).blobs.clear(),
        lambda session: session.messages.get(seq=2).blobs.set([]),
        lambda session: session.messages.get(seq=2).blobs.remove(Blob.objects.get()),
        lambda session: first(Blob).messages.clear(),
        lambda session: Message.blobs.through.objects.all().delete(),
        lambda session: Message.blobs.through.objects.all()._raw_delete("default"),
    ],
)
def test_the_way_through_a_session_is_refused_too(ada: Any, session: Session, change: Callable[[Any], Any]) -> None:
    create_chat(ada, "of another session")
    with pytest.raises(ImmutableError), transaction.atomic():
        change(session)
    assert Message.objects.filter(session=session).count() == 2
    assert Message.blobs.through.objects.count() == 1


@pytest.mark.parametrize("model", [model for model in KEPT if admin.site.is_registered(model)])
def test_the_admin_cannot_delete_in_bulk(rf: Any, ada: Any, session: Session, model: Any) -> None:
    ada.is_staff = ada.is_superuser = True
    ada.save()
    request = rf.post("/", {"post": "yes"})
    request.user, before = ada, model.objects.count()
    with contextlib.suppress(ImmutableError, PermissionDenied), transaction.atomic():
        delete_selected(admin.site._registry[model], request, model.objects.all())
        admin.site._registry[model].delete_queryset(request, model.objects.all())
        admin.site._registry[model].delete_model(request, first(model))
    assert model.objects.count() == before >= 1


def test_deleting_a_user_takes_no_row_of_the_record_along(ada: Any, session: Session) -> None:
    with pytest.raises((ImmutableError, ProtectedError)), transaction.atomic():
        ada.delete()
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
        "history/models/append_only.py",
        "history/formats/jsonl/storing.py",
        "history/retention/trimming.py",
        "history/retention/removal.py",
        "history/record/writer.py",
        "history/verification/projections_check.py",
    }


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
