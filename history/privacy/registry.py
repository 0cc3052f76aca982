"""Registry of personal data kept by each app: how to export and erase it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db.models import Model


@dataclass(frozen=True, slots=True)
class Holding:
    """`rows` are what is known of a person, for them to read; `erase` ends it, and says how many rows that were.

    Holdings are erased in the order in which they were registered; the account itself comes `last`. `shut` is called
    before anything is removed: from then on nothing new may come of it.
    """

    name: str
    rows: Callable[[AbstractUser], Iterable[Mapping[str, Any]]]
    erase: Callable[[AbstractUser], int]
    last: bool = False
    shut: Callable[[AbstractUser], object] = lambda person: None


_holdings: dict[str, Holding] = {}


def register_holding(holding: Holding) -> None:
    _holdings[holding.name] = holding


def holdings() -> list[Holding]:
    return sorted(_holdings.values(), key=lambda holding: holding.last)


def rows_holding(name: str, model: type[Model], *, of: str, secrets: tuple[str, ...] = ()) -> Holding:
    """Rows of a table that belong to a person and go with them."""

    def rows(person: AbstractUser) -> Iterator[dict[str, Any]]:
        for row in model._default_manager.filter(**{of: person}).order_by("pk").iterator():
            yield facts_of(row, without=(of, *secrets))

    def erase(person: AbstractUser) -> int:
        return model._default_manager.filter(**{of: person}).delete()[0]

    return Holding(name, rows, erase)


def facts_of(row: Model, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The columns of a row, as they are."""
    fields = [field for field in row._meta.concrete_fields if field.name not in without]
    return {field.name: field.value_from_object(row) for field in fields}
