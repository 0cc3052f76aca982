"""Prepared queries: a queryset compiled once, then run with other values.

Django's query compiler takes 0.2 to 0.3 ms of CPU for a small statement, five times as long as the statement itself. A
question in a chat makes dozens of them (`bench/chat.py`). A prepared query is compiled at its first call:

    @prepared
    def runs_of(session_id: UUID) -> QuerySet[Run]:
        return Run.objects.filter(session=session_id)

    runs_of(session.pk)         # a list of rows
    runs_of.first(session.pk)   # the first row, or None
    runs_of.get(session.pk)     # the first row; raises DoesNotExist of its model

The function is called with placeholder values, one for each argument, and the compiled statement is kept for the
types of the arguments. So the arguments may only be compared or stored; they must not decide what the query is.
`True`, `False` and `None` are no placeholders: each has a statement of its own. A list takes any number of values, for
`among(...)`.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, wraps
from typing import Any, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.query import FlatValuesListIterable, ModelIterable, ValuesListIterable
from django.db.models.sql import DeleteQuery, Query, UpdateQuery

P = ParamSpec("P")
Row = TypeVar("Row")
Rows = QuerySet[Any, Any]
Kinds = tuple[Any, ...]  # of the arguments: a type, (list, type), or a constant
Fill = tuple[int, Callable[[Any, BaseDatabaseWrapper], Any] | None]  # number of an argument, conversion if it needs one

# Words without quotes, which are written into the statement. SQLite prepares a statement with a bound `state` anew each
# time, because of the partial indexes.
_WORD = re.compile(r"[a-z_]{1,20}")


class PreparedQuery(Generic[P, Row]):
    """The rows of a queryset of rows, or of `values_list`."""

    def __init__(self, build: Callable[P, QuerySet[Any, Row]]) -> None:
        self._build = build
        self._compiled = cache(self._compile)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> list[Row]:
        compiled = self._compiled(_kinds(args, kwargs), connection.vendor)
        if compiled is None:
            return []
        statement, reader = compiled
        with connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.fill(args, cursor.db))
            return cast(list[Row], reader(cursor.fetchall(), cursor.db))

    def first(self, *args: P.args, **kwargs: P.kwargs) -> Row | None:
        return next(iter(self(*args, **kwargs)), None)

    def get(self, *args: P.args, **kwargs: P.kwargs) -> Row:
        for row in self(*args, **kwargs):
            return row
        raise self._build(*args, **kwargs).model.DoesNotExist

    def _compile(self, kinds: Kinds, vendor: str) -> "tuple[_Statement, _Reader] | None":
        rows = self._build(*_placeholders(kinds))  # type: ignore[call-arg]
        try:
            return _statement(rows.query, kinds), _reader(rows)
        except EmptyResultSet:
            return None


def prepared(build: Callable[P, QuerySet[Any, Row]]) -> PreparedQuery[P, Row]:
    return PreparedQuery(build)


def prepared_update(build: Callable[P, tuple[Rows, dict[str, Any]]]) -> Callable[P, int]:
    """Update the rows of a queryset with these values. Returns how many rows there were."""

    def query_of(*args: Any) -> Any:
        rows, values = build(*args)  # type: ignore[call-arg]
        query: Any = rows.query.chain(UpdateQuery)
        query.add_update_values(values)
        return query

    return wraps(build)(_writer(query_of))


def prepared_delete(build: Callable[P, Rows]) -> Callable[P, int]:
    """Delete the rows of a queryset, whose table no other table refers to. Returns how many rows there were."""

    def query_of(*args: Any) -> Query:
        query = build(*args).query.clone()  # type: ignore[call-arg]
        query.__class__ = DeleteQuery
        return query

    return wraps(build)(_writer(query_of))


def _writer(query_of: Callable[..., Query]) -> Callable[..., int]:
    @cache
    def compile_statement(kinds: Kinds, vendor: str) -> "_Statement":
        return _statement(query_of(*_placeholders(kinds)), kinds)

    def write(*args: Any, **kwargs: Any) -> int:
        statement = compile_statement(_kinds(args, kwargs), connection.vendor)
        with connection.cursor() as cursor:
            cursor.execute(statement.sql, statement.fill(args, cursor.db))
            return int(cursor.rowcount)

    return write


@dataclass(frozen=True, slots=True)
class _Statement:
    """SQL with its parameters: constants, or places of arguments."""

    sql: str
    parameters: Sequence[Any]
    places: Sequence[tuple[int, Fill]]

    def fill(self, args: Sequence[Any], database: BaseDatabaseWrapper) -> list[Any]:
        values = list(self.parameters)
        for place, (number, convert) in self.places:
            value = args[number]
            values[place] = value if convert is None else convert(value, database)
        return values


_Reader = Callable[[Sequence[Sequence[Any]], BaseDatabaseWrapper], Sequence[Any]]


def _kinds(args: Sequence[Any], kwargs: dict[str, Any]) -> Kinds:
    if kwargs:
        raise TypeError("pass the arguments of a prepared query by position")
    return tuple(_kind(value) for value in args)


def _kind(value: Any) -> Any:
    if _is_constant(value):
        return value
    if isinstance(value, list):
        return list, type(value[0])
    return str if isinstance(value, str) else type(value)


def _is_constant(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _placeholders(kinds: Kinds) -> list[Any]:
    return [
        [_placeholder(kind[1], number)] if isinstance(kind, tuple) else _placeholder(kind, number)
        for number, kind in enumerate(kinds)
    ]


def _placeholder(kind: Any, number: int) -> Any:
    """A value that no query has as a constant."""
    if _is_constant(kind):
        return kind
    makers: dict[type, Callable[[int], Any]] = {
        UUID: lambda number: UUID(int=0xFACADE << 100 | number),
        int: lambda number: 2_047_483_001 + number,
        str: lambda number: f"\x01placeholder {number}",
        datetime: lambda number: datetime(1900, 1, 1 + number, 1, 2, 3, 4567, UTC),
    }
    return makers[kind](number)


def _statement(query: Query, kinds: Kinds) -> _Statement:
    sql, parameters = query.get_compiler(connection=connection).as_sql()
    places: list[tuple[int, Fill]] = []
    kept: list[Any] = []
    pieces = sql.split("%s")
    text = pieces[0]
    for value, piece in zip(parameters, pieces[1:], strict=True):
        fill = _fill_of(value, kinds)
        if fill is None and isinstance(value, str) and _WORD.fullmatch(value):
            text += f"'{value}'{piece}"
            continue
        if fill is not None:
            places.append((len(kept), fill))
        kept.append(value)
        text += f"%s{piece}"
    known = {number for _, (number, _) in places}
    if unused := [
        n for n, kind in enumerate(kinds) if n not in known and kind is not None and kind not in (True, False)
    ]:
        raise TypeError(f"a prepared query does not use its argument {unused[0]} as it is: {sql}")
    return _Statement(text, kept, places)


def _fill_of(value: Any, kinds: Kinds) -> Fill | None:
    """The argument that a parameter of the compiled statement stands for, and its conversion."""
    for number, kind in enumerate(kinds):
        if _is_constant(kind):
            continue
        if isinstance(kind, tuple):
            several = [_placeholder(kind[1], number)]
            if value == several:
                return number, None
            if value == _as_json(several, connection):
                return number, _as_json
            continue
        one = _placeholder(kind, number)
        if (type(value) is type(one) and value == one) or (kind is int and value == one):
            return number, None
        if (convert := _CONVERSIONS.get(kind)) and value == convert(one, connection):
            return number, convert
    return None


def _as_json(values: Sequence[Any], database: BaseDatabaseWrapper) -> str:
    return json.dumps([value.hex if isinstance(value, UUID) else value for value in values])


def _as_hex(value: UUID, database: BaseDatabaseWrapper) -> str:
    return value.hex


def _as_moment(value: datetime, database: BaseDatabaseWrapper) -> Any:
    return database.ops.adapt_datetimefield_value(value)


_CONVERSIONS: dict[type, Callable[[Any, BaseDatabaseWrapper], Any]] = {UUID: _as_hex, datetime: _as_moment}


def _reader(rows: Rows) -> _Reader:
    """How the rows of the cursor become those of the queryset."""
    compiler = rows.query.get_compiler(connection=connection)
    compiler.as_sql()
    if rows.query.extra_select or rows.query.select_related:
        raise TypeError("a prepared query has no annotations and no related rows")
    columns = [column for column, _, _ in compiler.select]
    converters = [
        (place, column, [*connection.ops.get_db_converters(column), *column.get_db_converters(connection)])
        for place, column in enumerate(columns)
    ]
    converters = [converter for converter in converters if converter[2]]

    def convert(row: Sequence[Any], database: BaseDatabaseWrapper) -> Sequence[Any]:
        values = list(row)
        for place, column, functions in converters:
            for function in functions:
                values[place] = function(values[place], column, database)
        return values

    iterable = rows._iterable_class
    if iterable is ModelIterable:
        model: type[Model] = rows.model
        names = [column.target.attname for column in columns]
        return lambda found, database: [model.from_db(database.alias, names, convert(row, database)) for row in found]
    if iterable is FlatValuesListIterable:
        return lambda found, database: [convert(row[:1], database)[0] for row in found]
    if iterable is ValuesListIterable:
        return lambda found, database: [tuple(convert(row, database)) for row in found]
    raise TypeError(f"a prepared query cannot read {iterable.__name__}")
