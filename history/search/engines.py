"""Search engines: FTS5 and PostgreSQL's GIN index, and the newest rows that match a query.

FTS5 returns rows by descending id and stops at the limit. The GIN index must find all hits before it knows the newest.
So on PostgreSQL the newest rows are scanned first, which is enough for common words (the planner's statistics say how
many rows). Then up to 2,000 hits are fetched and sorted. If there are more, the primary key is walked backwards.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from history.record.search_rows import FIRST_PART, LONG_MESSAGE, ROWS
from history.search.queries import Query, Term

FEW = 2_000
RECENT = 500
MOST_RECENT = 30_000
HIGHEST = 2**63 - 1
TABLE = "history_searchrow"
INDEX = "history_searchindex"
DECIDES = f"%% {ROWS} < {FIRST_PART}"
Batch = tuple[list[Any], bool]


@dataclass(frozen=True, slots=True)
class QuerySyntax:
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
    """The query in the syntax of the engine. It needs at least one group."""
    needed = dialect.every(dialect.some(_needed(term, dialect) for term in group) for group in query.needed)
    if not query.excluded:
        return needed
    return f"{needed}{dialect.but_not}{dialect.some(_excluded(term, dialect) for term in query.excluded)}"


# The row that decides about a long message has each word once, in no order. There a needed phrase means its words, and
# an excluded one means nothing; `finding` checks the parts afterwards.
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
    """What to read of each hit: SQL that may use `h`, the id of the matching row, and its parameters in order."""

    columns: str
    joins: str
    parameters: tuple[Any, ...] = ()


def newest_rows(query: Query, joined: Joined, *, below: int, limit: int) -> Batch:
    """The newest rows that decide about a message, with the columns of `joined`, and whether there are no others."""
    return (_newest_on_postgres if _is_postgres() else _newest_on_sqlite)(query, joined, below, limit)


def rows_holding(terms: Iterable[Term], where: str, *, first: int, last: int) -> list[int]:
    """Rows of one kind (PART, LONG_MESSAGE) between two ids that have any of the terms."""
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
    return found, len(found) < limit


def _newest_on_postgres(query: Query, joined: Joined, below: int, limit: int) -> Batch:
    parameters = [engine_query(query, TSQUERY), below, limit, *joined.parameters]
    for recent in _sizes_of_scans(parameters[0], limit):
        found = _among_recent(recent, joined, parameters)
        if len(found) == limit:
            return found, False
    hits = f"SELECT id FROM {TABLE} WHERE tokens @@ %s::tsquery AND id < %s AND id {DECIDES}"  # noqa: S608
    few = (
        f"WITH few AS MATERIALIZED ({hits} LIMIT {FEW + 1}), h AS (SELECT id FROM few ORDER BY id DESC LIMIT %s) "  # noqa: S608
        f"SELECT h.id, {joined.columns}, (SELECT count(*) FROM few) FROM h {joined.joins} ORDER BY h.id DESC"
    )
    found = _rows(few, parameters)
    if not found or found[0][-1] <= FEW:
        return [row[:-1] for row in found], not found or found[0][-1] <= limit
    found = _rows(_newest_of(hits, joined), parameters)
    return found, len(found) < limit


def _sizes_of_scans(words: str, limit: int) -> Iterator[int]:
    """Numbers of newest rows that may have enough hits: a few hundred, then the planner's estimate."""
    if limit < RECENT:
        yield RECENT
    (plan,) = _rows(f"EXPLAIN (FORMAT JSON) SELECT FROM {TABLE} WHERE tokens @@ %s::tsquery", [words])[0]
    (rows,) = _rows("SELECT reltuples FROM pg_class WHERE oid = %s::regclass", [TABLE])[0]
    expected = 2 * limit * rows / max(1, plan[0]["Plan"]["Plan Rows"])
    if RECENT < expected <= MOST_RECENT:
        yield int(expected)


def _among_recent(recent: int, joined: Joined, parameters: Sequence[Any]) -> list[Any]:
    """The hits among the newest rows. For common words a full page, in a fraction of the time."""
    words, below, *others = parameters
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
