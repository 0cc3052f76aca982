"""Registry of the personal data that each app stores: how to export and erase it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from django.contrib.auth.models import AbstractUser
from django.db.models import Model

from history.entries import JsonObject


@dataclass(frozen=True, slots=True)
class PersonalData:
    """`rows` are exported; `erase` removes or anonymises them and returns their number.

    Data is erased in the order of registration. Rows `of_sessions` are counted before the sessions are erased, because
    they go with them; the account itself comes `last`. `shut` is called before anything is removed: afterwards no new
    rows can come.
    """

    name: str
    rows: Callable[[AbstractUser], Iterable[JsonObject]]
    erase: Callable[[AbstractUser], int]
    of_sessions: bool = False
    last: bool = False
    shut: Callable[[AbstractUser], object] = lambda person: None


_registered: dict[str, PersonalData] = {}


def register_personal_data(data: PersonalData) -> None:
    _registered[data.name] = data


def registered_data() -> list[PersonalData]:
    return sorted(_registered.values(), key=lambda data: data.last)


def rows_of_table(name: str, model: type[Model], *, of: str, secrets: tuple[str, ...] = ()) -> PersonalData:
    """Rows of a table that belong to a user and are erased with the account."""

    def rows(person: AbstractUser) -> Iterator[JsonObject]:
        for row in model._default_manager.filter(**{of: person}).order_by("pk").iterator():
            yield columns_of(row, without=(of, *secrets))

    def erase(person: AbstractUser) -> int:
        return model._default_manager.filter(**{of: person}).delete()[0]

    return PersonalData(name, rows, erase)


def columns_of(row: Model, *, without: tuple[str, ...] = ()) -> JsonObject:
    fields = [field for field in row._meta.concrete_fields if field.name not in without]
    return {field.name: field.value_from_object(row) for field in fields}
