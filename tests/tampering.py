"""Changes of stored rows that Parley refuses, as a tool outside of it would make them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.models import QuerySet
from django.db.models.signals import pre_delete

from history.models import AuditEvent, Blob, Exchange, Message, Session, ToolCall, append_only

__all__ = ["by_hand"]

GUARDED = (AuditEvent, Blob, Exchange, Message, Session, ToolCall)


class _Rows(QuerySet[Any]):
    def delete(self) -> tuple[int, dict[str, int]]:
        with _unguarded():
            return super().delete()


def by_hand(rows: QuerySet[Any]) -> QuerySet[Any]:
    """The same rows without any guard; a deletion takes along what refers to them."""
    return _Rows(rows.model, query=append_only.writable(rows).query, using=rows.db)


@contextmanager
def _unguarded() -> Iterator[None]:
    """Another receiver stays in the place of the guard: without one the collector takes a shortcut."""
    for model in GUARDED:
        pre_delete.disconnect(append_only._refuse_deletion, sender=model)
        pre_delete.connect(_let_pass, sender=model)
    try:
        yield
    finally:
        for model in GUARDED:
            pre_delete.disconnect(_let_pass, sender=model)
            pre_delete.connect(append_only._refuse_deletion, sender=model)


def _let_pass(**_named: Any) -> None:
    """Nothing."""
