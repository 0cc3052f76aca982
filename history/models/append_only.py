"""Append-only models and querysets: `delete` and `update` raise, except through `writable`.

A view, a script or a shell gets an error instead of a hole in the record. `tests/history/models` lists the modules that
may use `writable`. The guard covers querysets, `save` and `delete` of a row, links to blobs, and Django's collector
(cascades, the admin) through `pre_delete`; the deleter uses `_raw_delete`, which follows no relations.
"""

from typing import Any, TypeVar

from django.db.models import Manager, Model, QuerySet
from django.db.models.signals import m2m_changed, pre_delete

M = TypeVar("M", bound=Model)


class ImmutableError(TypeError):
    """Raised when code other than the one writer or the one deleter changes or removes a stored row."""


class UndeletableQuerySet(QuerySet[M]):
    """Rows that only `retention` removes."""

    def delete(self) -> tuple[int, dict[str, int]]:
        raise ImmutableError(f"{self.model.__name__} rows are removed by history.retention alone.")

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def _raw_delete(self, using: str | None) -> int:
        return self.delete()[0]


class AppendOnlyQuerySet(UndeletableQuerySet[M]):
    """Rows that never change and that only `retention` removes."""

    def update(self, **_values: object) -> int:
        raise ImmutableError(f"Stored {self.model.__name__} rows never change: append with history.record.recorder.")

    update.alters_data = True  # type: ignore[attr-defined]

    def _update(self, values: object) -> int:
        return self.update()

    def bulk_update(self, *_arguments: object, **_named: object) -> int:
        return self.update()

    bulk_update.alters_data = True  # type: ignore[attr-defined]

    def bulk_create(self, *arguments: Any, **named: Any) -> list[M]:
        if named.get("update_conflicts") or any(arguments[3:4]):
            self.update()
        return super().bulk_create(*arguments, **named)


def _refuse_deletion(sender: Any, **_named: object) -> None:
    raise ImmutableError(f"{sender.__name__} rows are removed by history.retention alone.")


class UndeletableModel(Model):
    """A model whose rows only `retention` removes."""

    objects = Manager.from_queryset(UndeletableQuerySet)()

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        # For these models only: with a receiver, the collector reads every row before it deletes.
        pre_delete.connect(_refuse_deletion, sender=cls)

    def delete(self, *_arguments: object, **_named: object) -> tuple[int, dict[str, int]]:
        raise ImmutableError(f"{type(self).__name__} rows are removed by history.retention alone.")


class AppendOnlyModel(UndeletableModel):
    """A model whose rows are written once and never change. Only `retention` removes them."""

    objects = Manager.from_queryset(AppendOnlyQuerySet)()  # type: ignore[misc]

    class Meta:
        abstract = True
        base_manager_name = "objects"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise ImmutableError(f"A stored {type(self).__name__} never changes: append a new one.")
        super().save(*args, **kwargs)


def guard_links(through: Any) -> None:
    """Guard a many-to-many table made by Django: only `retention` removes its rows."""
    through._meta.local_managers.clear()
    through.add_to_class("objects", Manager.from_queryset(UndeletableQuerySet)())
    m2m_changed.connect(_refuse_unlinking, sender=through)


def _refuse_unlinking(sender: Any, action: str, **_named: object) -> None:
    if action in ("pre_remove", "pre_clear"):
        _refuse_deletion(sender)


def writable(rows: QuerySet[M]) -> QuerySet[M]:
    """The same rows without the guard, for the one writer and the one deleter."""
    return QuerySet(rows.model, query=rows.query.chain(), using=rows.db)
