"""Querysets of append-only tables: `delete` and `update` are refused, except through `writable`.

Stored entries never change, and rows of the record are removed by `retention` alone. A view, a script or a shell that
calls `Message.objects.filter(...).delete()` gets an error instead of a hole in the record. `tests/history` lists the
modules that may use `writable`: the writer (`storage`, `formats.jsonl`), the deleter (`retention`) and the repair of
projections (`verification`). The deleter removes by `_raw_delete`, which follows no relations.
"""

from __future__ import annotations

from typing import Any, TypeVar

from django.db.models import Manager, Model, QuerySet

M = TypeVar("M", bound=Model)


class ImmutableError(TypeError):
    """A stored row was to be changed or removed outside the one writer and the one deleter."""


class KeptQuerySet(QuerySet[M]):
    """Rows that only `retention` removes."""

    def delete(self) -> tuple[int, dict[str, int]]:
        raise ImmutableError(f"{self.model.__name__} rows are removed by history.retention alone.")

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]


class AppendOnlyQuerySet(KeptQuerySet[M]):
    """Rows that never change either."""

    def update(self, **_values: Any) -> int:
        raise ImmutableError(f"Stored {self.model.__name__} rows never change: append with history.recorder.")

    update.alters_data = True  # type: ignore[attr-defined]

    def bulk_update(self, *_arguments: Any, **_named: Any) -> int:
        return self.update()

    bulk_update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(self, *arguments: Any, **named: Any) -> list[M]:
        if named.get("update_conflicts"):
            self.update()
        return super().bulk_create(*arguments, **named)


class Undeletable(Model):
    """A model whose instances only `retention` removes; give it a manager of `KeptQuerySet`."""

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def delete(self, *_arguments: Any, **_named: Any) -> tuple[int, dict[str, int]]:
        raise ImmutableError(f"{type(self).__name__} rows are removed by history.retention alone.")


class Kept(Undeletable):
    """A model whose rows only `retention` removes."""

    objects = Manager.from_queryset(KeptQuerySet)()

    class Meta:
        abstract = True
        base_manager_name = "objects"


class AppendOnly(Undeletable):
    """A model whose rows are written once, and which only `retention` removes."""

    objects = Manager.from_queryset(AppendOnlyQuerySet)()

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise ImmutableError(f"A stored {type(self).__name__} never changes: append a new one.")
        super().save(*args, **kwargs)


def writable(rows: QuerySet[M]) -> QuerySet[M]:
    """The same rows without the guard, for the one writer and the one deleter."""
    return QuerySet(rows.model, query=rows.query.chain(), using=rows.db)
