"""Rows in and out without Django's query compiler, for the two paths where its cost is most of the cost.

They are appending, and reading a page of a session. The SQL is made once per model and database from the model's own
fields; values go through the fields' own conversions wherever a field has any. Everything else uses the ORM.

`django.db.connection` finds the thread's connection anew at every attribute; in loops `cursor.db` is the thing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, TypeVar, cast
from uuid import UUID

import msgspec
from django.db import connection, models
from django.db.models.base import ModelState

from history.db.packing import clean, clean_deep

M = TypeVar("M", bound=models.Model)

# Fields whose values every driver takes as they are.
_PLAIN = (models.CharField, models.TextField, models.IntegerField, models.BooleanField, models.FloatField)
_ROWS_PER_STATEMENT = 100
# From so many rows on, PostgreSQL's COPY is cheaper than a statement with a place for each value.
_ROWS_TO_COPY = 8


def new(model: type[M], /, **values: Any) -> M:
    """Like `model(**values)`, an unsaved row, at a fraction of its price. Relations are given whole or by their id."""
    constants, made, relations, known = _beginnings(model)
    row = model.__new__(model)
    row._state = ModelState()
    attributes = row.__dict__
    attributes.update(constants)
    for name, make in made:
        if name not in values:
            attributes[name] = make()
    for name in relations.keys() & values.keys():
        other = values.pop(name)
        row._state.fields_cache[name] = other
        attributes[relations[name]] = None if other is None else other.pk
    if not known.issuperset(values):
        raise TypeError(f"{model.__name__} has no {', '.join(values.keys() - known)}")
    attributes.update(values)
    return row


@cache
def _beginnings(
    model: type[models.Model],
) -> tuple[dict[str, Any], list[tuple[str, Callable[[], Any]]], dict[str, str], frozenset[str]]:
    """What a new row holds: values that are always the same, such as are made anew, relations, all attributes."""
    fields = model._meta.concrete_fields
    made = {field.attname: field.default for field in fields if field.has_default() and callable(field.default)}
    constants = {field.attname: field.get_default() for field in fields if field.attname not in made}
    relations = {field.name: field.attname for field in fields if field.is_relation}
    return constants, list(made.items()), relations, frozenset(field.attname for field in fields)


def fitting(model: type[models.Model], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a caller gives, as any database takes it: texts clean, and not longer than their columns."""
    return {name: _fitting(model, name, value) for name, value in values.items()}


def fitting_text(model: type[models.Model], name: str, text: str) -> str:
    """The same for one text; how long a column is stands in the model and nowhere else."""
    return clean(text[: _length(model, name)]) if text else ""


def _fitting(model: type[models.Model], name: str, value: Any) -> Any:
    kind = _kind(model, name)
    if kind == "json":
        return clean_deep(value)
    return fitting_text(model, name, value) if kind == "text" and isinstance(value, str) else value


@cache
def _kind(model: type[models.Model], name: str) -> str:
    field = _field(model, name)
    if isinstance(field, models.JSONField):
        return "json"
    return "text" if isinstance(field, models.CharField | models.TextField) else ""


@cache
def _length(model: type[models.Model], name: str) -> int | None:
    length: int | None = _field(model, name).max_length
    return length


def insert(model: type[M], rows: Sequence[M]) -> None:
    """Like bulk_create: many rows in few statements, and each gets its primary key."""
    if connection.vendor == "postgresql" and len(rows) >= _ROWS_TO_COPY:
        _copy(model, rows)
        return
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        _insert(model, rows[start : start + _ROWS_PER_STATEMENT])


def update(model: type[M], rows: Sequence[M], names: tuple[str, ...]) -> None:
    """Write these fields of each row, found by its primary key."""
    columns = _columns(model, (*names, "pk"))
    with connection.cursor() as cursor:
        sql = _update_sql(model, names, connection.vendor)
        cursor.executemany(sql, [_values(row, columns, cursor.db) for row in rows])


def read(model: type[M], where: str, parameters: Sequence[Any]) -> list[M]:
    """Whole rows. `where` is SQL of our own: conditions, order and limit."""
    names = frozenset(field.name for field in model._meta.concrete_fields)
    return _read(model, names, where, parameters)


def read_locked(model: type[M], pks: Sequence[Any], names: frozenset[str]) -> list[M]:
    """These rows as they are now, nobody else's until the transaction ends. Fields not named are deferred."""
    key = _field(model, "pk")
    ending = " FOR UPDATE" if connection.features.has_select_for_update else ""
    values = [key.get_db_prep_value(pk, connection) for pk in pks]
    if connection.vendor == "postgresql":
        return _read(model, names, f"{_quoted(key.column)} = ANY(%s) ORDER BY 1{ending}", [values])
    return _read(model, names, f"{_quoted(key.column)} IN ({', '.join(['%s'] * len(pks))}) ORDER BY 1{ending}", values)


def _read(model: type[M], names: frozenset[str], where: str, parameters: Sequence[Any]) -> list[M]:
    attnames, start, converters = _select_sql(model, names, connection.vendor)
    with connection.cursor() as cursor:
        cursor.execute(start + where, parameters)
        database = cursor.db
        found = cursor.fetchall()
    return [model.from_db(database.alias, attnames, _converted(row, converters, database)) for row in found]


def _insert(model: type[M], rows: Sequence[M]) -> None:
    has_key = rows[0].pk is not None
    names, start, one = _insert_sql(model, has_key, connection.vendor)
    columns = _columns(model, names)
    ending = "" if has_key else f" RETURNING {_quoted(_field(model, 'pk').column)}"
    with connection.cursor() as cursor:
        parameters = [value for row in rows for value in _values(row, columns, cursor.db)]
        cursor.execute(start + ", ".join([one] * len(rows)) + ending, parameters)
        keys = [] if has_key else cursor.fetchall()
        alias = cursor.db.alias
    for row, key in zip(rows, keys, strict=False):
        row.pk = key[0]
    _note_stored(rows, alias)


def _copy(model: type[M], rows: Sequence[M]) -> None:
    """With a stream of values instead of a statement that has to be taken apart anew each time."""
    columns = _columns(model, tuple(field.name for field in model._meta.concrete_fields))
    with connection.cursor() as cursor:
        if rows[0].pk is None:
            cursor.execute(_keys_sql(model), [len(rows)])
            for row, (key,) in zip(rows, cursor.fetchall(), strict=True):
                row.pk = key
        database = cursor.db
        with database.wrap_database_errors, cursor.copy(_copy_sql(model)) as copy:
            for row in rows:
                copy.write_row(_values(row, columns, database))
    _note_stored(rows, database.alias)


def _note_stored(rows: Sequence[models.Model], alias: str) -> None:
    for row in rows:
        row._state.adding, row._state.db = False, alias


@cache
def _copy_sql(model: type[models.Model]) -> str:
    columns = ", ".join(_quoted(field.column) for field in model._meta.concrete_fields)
    return f"COPY {_quoted(model._meta.db_table)} ({columns}) FROM STDIN"


@cache
def _keys_sql(model: type[models.Model]) -> str:
    """The next keys, in order; nobody else gets them."""
    table, column = model._meta.db_table, _field(model, "pk").column
    return f"SELECT nextval(pg_get_serial_sequence('{table}', '{column}')) FROM generate_series(1, %s)"  # noqa: S608 - names of our own


@cache
def _insert_sql(model: type[models.Model], has_key: bool, vendor: str) -> tuple[tuple[str, ...], str, str]:
    fields = [field for field in model._meta.concrete_fields if has_key or not field.primary_key]
    columns = ", ".join(_quoted(field.column) for field in fields)
    places = ", ".join(_placeholder(field) for field in fields)
    start = f"INSERT INTO {_quoted(model._meta.db_table)} ({columns}) VALUES "  # noqa: S608 - names of our own
    return tuple(field.name for field in fields), start, f"({places})"


@cache
def _update_sql(model: type[models.Model], names: tuple[str, ...], vendor: str) -> str:
    columns = ", ".join(f"{_quoted(_field(model, name).column)} = %s" for name in names)
    key = _quoted(_field(model, "pk").column)
    return f"UPDATE {_quoted(model._meta.db_table)} SET {columns} WHERE {key} = %s"  # noqa: S608 - names of our own


@cache
def _select_sql(
    model: type[models.Model], names: frozenset[str], vendor: str
) -> tuple[list[str], str, list[tuple[int, Any, list[Any]]]]:
    """The names of the attributes in the order of the model, which `from_db` expects, the SQL, and the conversions."""
    fields = [field for field in model._meta.concrete_fields if field.primary_key or field.name in names]
    columns = ", ".join(_quoted(field.column) for field in fields)
    start = f"SELECT {columns} FROM {_quoted(model._meta.db_table)} WHERE "  # noqa: S608 - names of our own
    return [field.attname for field in fields], start, _converters(model, fields)


def _converters(model: type[models.Model], fields: Sequence[Any]) -> list[tuple[int, Any, list[Any]]]:
    """(place, column, functions) for the columns whose values need any conversion at all."""
    found = []
    for place, field in enumerate(fields):
        column = field.get_col(model._meta.db_table)
        functions = [*connection.ops.get_db_converters(column), *column.get_db_converters(connection)]
        if functions:
            found.append((place, column, functions))
    return found


def _converted(
    row: Sequence[Any], converters: Sequence[tuple[int, Any, list[Callable[..., Any]]]], database: Any
) -> list[Any]:
    values = list(row)
    for place, column, functions in converters:
        for function in functions:
            values[place] = function(values[place], column, database)
    return values


def _values(row: models.Model, columns: Sequence[tuple[str, Any]], database: Any) -> list[Any]:
    values = row.__dict__
    return [values[name] if prepare is None else prepare(values[name], database) for name, prepare in columns]


@cache
def _columns(model: type[models.Model], names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """(attribute, what converts it); None where every driver takes the value as it is."""
    return [(field.attname, _preparation(field)) for field in (_field(model, name) for name in names)]


def _preparation(field: Any) -> Callable[[Any, Any], Any] | None:
    """The field's own conversion, or where there are many of a kind, a quicker one that comes to the same."""
    plain = field.target_field if field.is_relation else field
    if isinstance(plain, models.BinaryField):
        return partial(_bytes, field)
    if hasattr(field, "get_placeholder"):
        return cast(Callable[[Any, Any], Any], field.get_db_prep_save)
    if isinstance(plain, _PLAIN):
        return None
    quick = {models.DateTimeField: _moment, models.UUIDField: _name, models.JSONField: _json}.get(type(plain))
    return partial(quick, field) if quick else cast(Callable[[Any, Any], Any], field.get_db_prep_save)


def _moment(field: Any, value: Any, database: Any) -> Any:
    if value is None or (type(value) is datetime and value.tzinfo is not None and database.vendor == "postgresql"):
        return value
    if type(value) is datetime and value.tzinfo is UTC and database.timezone is UTC and database.vendor == "sqlite":
        return value.isoformat(" ")[:-6]  # without the zone
    return field.get_db_prep_save(value, database)


def _name(field: Any, value: Any, database: Any) -> Any:
    if type(value) is UUID:
        return value if database.features.has_native_uuid_field else value.hex
    return field.get_db_prep_save(value, database)


def _bytes(field: Any, value: Any, database: Any) -> Any:
    is_taken = type(value) is bytes and database.vendor == "sqlite"
    return value if is_taken else field.get_db_prep_save(value, database)


def _json(field: Any, value: Any, database: Any) -> Any:
    if value == {}:
        return "{}"
    if field.encoder is None and database.vendor == "sqlite":
        try:
            return _written(value).decode()
        except (TypeError, ValueError, OverflowError):  # what only Python's own encoder can write: numbers of any size
            pass
    return field.get_db_prep_save(value, database)


_written = msgspec.json.Encoder().encode


def _field(model: type[models.Model], name: str) -> Any:
    return model._meta.pk if name == "pk" else model._meta.get_field(name)


def _placeholder(field: Any) -> str:
    return str(field.get_placeholder(None, None, connection)) if hasattr(field, "get_placeholder") else "%s"


def _quoted(name: str | None) -> str:
    return connection.ops.quote_name(name or "")
