"""The two engines: a query in the language of each, and the newest rows that match it.

Both know only words. SQLite has them in an FTS5 table that gives rows in the order of their ids, newest first, and
stops when it is told to. PostgreSQL has a GIN index, which must find everything before it can say what is newest: so
the newest rows are looked through first, which is enough for common words (how many rows, the planner's statistics
tell); then up to 2,000 hits are fetched and sorted; and where there are more, walking down the primary key meets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from history.record.search_rows import FIRST_PART, LONG_MESSAGE, PART, ROWS
from history.search.queries import Query, Term

FEW = 2_000
RECENT = 500
MOST_RECENT = 30_000
HIGHEST = 2**63 - 1
TABLE = "history_searchrow"
INDEX = "history_searchindex"
DECIDES = f"%% {ROWS} < {FIRST_PART}"


@dataclass(frozen=True, slots=True)
class QuerySyntax:
    """How an engine writes the parts of a query."""

    term: Callable[[Term], str]
    all_of: str
    any_of: str
    but_not: str

    def every(self, items: Iterable[str]) -> str:
        return f"({self.all_of.join(items)})"

    def some(self, items: Iterable[str]) -> str:
        return f"({self.any_of.join(items)})"


def _fts5_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"{" *" if term.is_prefix else ""}'


def _tsquery_term(term: Term) -> str:
    phrase = " <-> ".join(f"'{word}'" for word in term.words)
    return f"({phrase}:*)" if term.is_prefix else f"({phrase})"


FTS5 = QuerySyntax(term=_fts5_term, all_of=" AND ", any_of=" OR ", but_not=" NOT ")
TSQUERY = QuerySyntax(term=_tsquery_term, all_of=" & ", any_of=" | ", but_not=" & !")


def engine_query(query: Query, dialect: QuerySyntax) -> str:
    """The query as the engine reads it. At least one group is needed: nothing can be taken away from nothing."""
    needed = dialect.every(dialect.some(_needed(term, dialect) for term in group) for group in query.needed)
    if not query.excluded:
        return needed
    return f"{needed}{dialect.but_not}{dialect.some(_excluded(term, dialect) for term in query.excluded)}"


# The row that decides about a long message holds each word once, in no order. There a phrase that is needed means no
# more than its words, and one that is excluded means nothing: `finding` looks into the parts afterwards.


def _needed(term: Term, dialect: QuerySyntax) -> str:
    if len(term.words) == 1:
        return dialect.term(term)
    apart = [*(Term((word,)) for word in term.words[:-1]), Term(term.words[-1:], term.is_prefix), Term((LONG_MESSAGE,))]
    return dialect.some([dialect.term(term), dialect.every(map(dialect.term, apart))])


def _excluded(term: Term, dialect: QuerySyntax) -> str:
    if len(term.words) == 1:
        return dialect.term(term)
    return f"({dialect.term(term)}{dialect.but_not}{dialect.term(Term((LONG_MESSAGE,)))})"


@dataclass(frozen=True, slots=True)
class Joined:
    """What to read of each hit: SQL that may use `h`, the id of the row that matches, and its parameters in order."""

    columns: str
    joins: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of the answer, newest hit first, each beginning with the id of the row that matches."""

    rows: list[Any]
    is_last: bool


def newest_rows(query: Query, joined: Joined, *, below: int, limit: int) -> Batch:
    """Among the rows that decide about a message, the newest under `below`, with what was asked for of each."""
    return (_newest_on_postgres if _is_postgres() else _newest_on_sqlite)(query, joined, below, limit)


def parts_holding(terms: Iterable[Term], *, first: int, last: int) -> list[int]:
    """Part rows between two ids that hold any of the terms, oldest first."""
    return sorted(_holding(terms, PART, first, last))


def long_rows_holding(term: Term, *, first: int, last: int) -> list[int]:
    """Rows of the different words of long messages, between two ids, that hold a word."""
    return _holding([term], LONG_MESSAGE, first, last)


def _holding(terms: Iterable[Term], where: str, first: int, last: int) -> list[int]:
    dialect = TSQUERY if _is_postgres() else FTS5
    matches = dialect.every([dialect.some(map(dialect.term, terms)), dialect.term(Term((where,)))])
    if _is_postgres():
        sql = f"SELECT id FROM {TABLE} WHERE tokens @@ %s::tsquery AND id BETWEEN %s AND %s"  # noqa: S608
    else:
        sql = f"SELECT rowid FROM {INDEX} WHERE {INDEX} MATCH %s AND rowid BETWEEN %s AND %s"  # noqa: S608
    return [row[0] for row in _rows(sql, [matches, first, last])]


def _newest_on_sqlite(query: Query, joined: Joined, below: int, limit: int) -> Batch:
    hits = f"SELECT rowid AS id FROM {INDEX} WHERE {INDEX} MATCH %s AND rowid < %s AND rowid {DECIDES}"  # noqa: S608
    found = _rows(_newest_of(hits, joined), [engine_query(query, FTS5), below, limit, *joined.parameters])
    return Batch(found, is_last=len(found) < limit)


def _newest_on_postgres(query: Query, joined: Joined, below: int, limit: int) -> Batch:
    asked = [engine_query(query, TSQUERY), below, limit, *joined.parameters]
    for recent in _worth_looking_through(asked[0], limit):
        found = _among_recent(recent, joined, asked)
        if len(found) == limit:
            return Batch(found, is_last=False)
    hits = f"SELECT id FROM {TABLE} WHERE tokens @@ %s::tsquery AND id < %s AND id {DECIDES}"  # noqa: S608
    few = (
        f"WITH few AS MATERIALIZED ({hits} LIMIT {FEW + 1}), h AS (SELECT id FROM few ORDER BY id DESC LIMIT %s) "  # noqa: S608
        f"SELECT h.id, {joined.columns}, (SELECT count(*) FROM few) FROM h {joined.joins} ORDER BY h.id DESC"
    )
    found = _rows(few, asked)
    if not found or found[0][-1] <= FEW:
        return Batch([row[:-1] for row in found], is_last=not found or found[0][-1] <= limit)
    found = _rows(_newest_of(hits, joined), asked)
    return Batch(found, is_last=len(found) < limit)


def _worth_looking_through(words: str, limit: int) -> Iterator[int]:
    """Numbers of newest rows that may well hold so many hits: a few hundred, then as many as the planner believes."""
    if limit < RECENT:
        yield RECENT
    (plan,) = _rows(f"EXPLAIN (FORMAT JSON) SELECT FROM {TABLE} WHERE tokens @@ %s::tsquery", [words])[0]
    (rows,) = _rows("SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [TABLE])[0]
    expected = 2 * limit * rows / max(1, plan[0]["Plan"]["Plan Rows"])
    if RECENT < expected <= MOST_RECENT:
        yield int(expected)


def _among_recent(recent: int, joined: Joined, asked: Sequence[Any]) -> list[Any]:
    """The hits among so many of the newest rows: of common words a page full, in a fraction of the time."""
    words, below, *others = asked
    newest_rows = f"SELECT id, tokens FROM {TABLE} WHERE id < %s ORDER BY id DESC LIMIT {recent}"  # noqa: S608
    hits = f"SELECT id FROM ({newest_rows}) recent WHERE tokens @@ %s::tsquery AND id {DECIDES}"  # noqa: S608
    return _rows(_newest_of(hits, joined), [below, words, *others])


def _newest_of(hits: str, joined: Joined) -> str:
    newest_hits = f"WITH h AS ({hits} ORDER BY id DESC LIMIT %s)"
    return f"{newest_hits} SELECT h.id, {joined.columns} FROM h {joined.joins} ORDER BY h.id DESC"  # noqa: S608


def _rows(sql: str, parameters: Sequence[Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def _is_postgres() -> bool:
    return connection.vendor == "postgresql"
