"""Search for messages, in rounds until a page is full.

The query has the viewer's own scope, so that a search does not walk the messages of all users. Its hits are candidates:
`permissions.sessions_for` is the rule, and deleted or expired sessions drop out here. So a page is filled in rounds of
growing size. If the last round is not enough, the page says where to continue.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any
from uuid import UUID

from django.db import connection

from history.access.permissions import Purpose, Reach, Viewer, reach_of, sql_for
from history.access.reasons import readable_without_reason
from history.db.packing import MissingBlob
from history.models import Message, SearchRow, neutral_name
from history.record import search_rows
from history.record.projections import searched_text
from history.record.selectors import entries_of
from history.search import engines
from history.search.queries import Group, Query, SessionQuery, Term, parse_query
from history.search.snippets import Snippet, beginning_of, snippet_of

MANY = 2_000
MAX_PAGE = 100
LARGEST_ROUND = 2_000
ROUNDS = 12
NARROWED_MONTHS = 24
MOST_HITS, MOST_SESSIONS = 300, 2_000  # of a list that shows rows in its own way
SESSION_COLUMNS = ("id", "title", "source", "api_key_id", "owner_id")
HIT_COLUMNS = (
    "m.session_id, s.title, m.seq, m.on_path, m.kind, m.role, m.status, m.agent, m.model, m.created_at, m.content"
)
Round = tuple[list[Any], int | None]


@dataclass(frozen=True, slots=True)
class Count:
    """A number of messages; the lowest possible one if it is not exact."""

    number: int
    is_exact: bool = True

    def __str__(self) -> str:
        return f"{self.number:,}" if self.is_exact else f"{self.number:,}+"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A message that matches. `is_cut`: it is so long that part of it is not indexed."""

    message_id: int
    session_id: UUID
    title: str
    seq: int
    on_path: bool
    kind: str
    role: str
    status: str
    agent: str
    model: str
    at: datetime
    snippet: Snippet
    is_cut: bool


@dataclass(frozen=True, kw_only=True)
class Results:
    """Hits, newest recorded first. `next_before` continues the page; None at the end."""

    hits: tuple[Hit, ...] = ()
    next_before: int | None = None
    request: "SearchRequest | None" = field(default=None, repr=False, compare=False)

    @cached_property
    def count(self) -> Count:
        """On demand: it costs more than finding a page."""
        return Count(0) if self.request is None else count(self.request)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    typed: Query
    query: Query
    filters: SessionQuery
    served: tuple[str, list[Any]]  # SQL of the sessions that the viewer may see

    def narrowed(self, word: str) -> "SearchRequest":
        """The same search among the messages with this scope word."""
        return replace(self, query=replace(self.query, needed=(*self.query.needed, _any([word]))))


def search(
    viewer: Viewer, query: str, *, filters: SessionQuery = SessionQuery(), before: int | None = None, limit: int = 20
) -> Results:
    """Visible messages that match, newest recorded first. `before` continues a page."""
    request = build_request(viewer, query, filters)
    if request is None:
        return Results()
    found, read_on = take(request, HIT_COLUMNS, max(1, min(limit, MAX_PAGE)), before=before)
    hits = _with_visible_titles(viewer, [_hit(request.typed.terms, row) for row in found])
    return Results(hits=hits, next_before=read_on, request=request)


def _with_visible_titles(viewer: Viewer, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Titles are text: those of other users' sessions are shown once they were opened with a reason."""
    if reach_of(viewer, Purpose.READ) != Reach():
        return tuple(hits)
    shown = readable_without_reason(viewer, {hit.session_id for hit in hits})
    return tuple(hit if hit.session_id in shown else replace(hit, title=neutral_name(hit.at)) for hit in hits)


def build_request(viewer: Viewer, typed: str, filters: SessionQuery) -> SearchRequest | None:
    """The request of a viewer. None if nothing can match: no permission, or a text without words."""
    reach, served = reach_of(viewer, Purpose.READ), sql_for(viewer, Purpose.READ, SESSION_COLUMNS)
    if reach is None or served is None:
        return None
    query = parse_query(typed)
    if typed.strip() and not (query.needed or query.excluded):
        return None
    # Narrows to what the viewer can reach at all. `sessions_for` decides what is shown now.
    letters = {"o": reach.owner_id, "k": reach.api_key_id}
    words = [search_rows.number_word(letter, number) for letter, number in letters.items() if number is not None]
    scope = [*(_any([word]) for word in words), *_filter_groups(filters)]
    if not scope and not query.needed:
        scope = [_any([search_rows.EVERY_MESSAGE])]
    excluded = (Term((search_rows.HAS_ERROR,)),) if filters.has_error is False else ()
    complete = replace(query, needed=(*scope, *query.needed), excluded=(*query.excluded, *excluded))
    return SearchRequest(query, complete, filters, served)


def _filter_groups(filters: SessionQuery) -> list[Group]:
    numbers = {"o": filters.owner, "k": filters.key}
    names = {letter: getattr(filters, name) for name, letter in search_rows.LETTERS.items()}
    groups = [[search_rows.number_word(letter, number) for number in values] for letter, values in numbers.items()]
    groups += [[search_rows.name_word(letter, name) for name in values] for letter, values in names.items()]
    groups += [[search_rows.session_word(session) for session in filters.session]]
    groups += [[search_rows.HAS_ERROR] if filters.has_error else [], _months(filters)]
    return [_any(words) for words in groups if words]


def _months(filters: SessionQuery) -> list[str]:
    """The months of the dates, if they are few enough to help. `created_at` decides in the end."""
    if filters.since is None:
        return []
    first, last = filters.since, filters.until or datetime.now(UTC)
    start, end = first.year * 12 + first.month - 1, last.year * 12 + last.month  # one month more: clocks differ
    end = min(end, datetime.max.year * 12 + 11)
    if end - start > NARROWED_MONTHS:
        return []
    firsts = (datetime(number // 12, number % 12 + 1, 1, tzinfo=UTC) for number in range(start, end + 1))
    return list(dict.fromkeys([*map(search_rows.month_word, firsts), search_rows.SOME_DAY]))


def _any(words: Sequence[str]) -> Group:
    return tuple(Term((word,)) for word in words)


def rounds(request: SearchRequest, columns: str, *, before: int | None = None, size: int) -> Iterator[Round]:
    """Query until the end, in rounds of growing size. `columns` is SQL over the message m and session s.

    A round has the visible messages that match, newest first: the id of the matching row and the columns. Its number is
    the message under which there may be more.
    """
    below = engines.HIGHEST if before is None else min(before * search_rows.ROWS, engines.HIGHEST)
    joined = _joined(request, columns)
    for _ in range(ROUNDS):
        rows, is_last = engines.newest_rows(request.query, joined, below=below, limit=size)
        read_on = None if is_last else search_rows.message_of(rows[-1][0])
        yield [(row[0], *row[2:]) for row in _confirmed(request.typed, rows) if row[1]], read_on
        if read_on is None:
            return
        below = read_on * search_rows.ROWS
        size = min(size * 2, LARGEST_ROUND)


def _joined(request: SearchRequest, columns: str) -> engines.Joined:
    """The message and its session. The first column says whether the viewer may see them, within the dates."""
    served, parameters = request.served
    times = [("m.created_at >= %s", request.filters.since), ("m.created_at < %s", request.filters.until)]
    wanted = [(condition, time) for condition, time in times if time is not None]
    seen = " AND ".join(["s.id IS NOT NULL", *(condition for condition, _ in wanted)])
    return engines.Joined(
        columns=f"({seen}), {columns}",
        joins=f"JOIN history_message m ON m.id = h.id / {search_rows.ROWS} "
        f"LEFT JOIN ({served}) s ON s.id = m.session_id",
        parameters=(*(connection.ops.adapt_datetimefield_value(time) for _, time in wanted), *parameters),
    )


def _confirmed(query: Query, found: list[Any]) -> list[Any]:
    """Without long messages that have all the words of a phrase, but not in order."""
    if not query.has_phrases:
        return found
    long = [search_rows.message_of(row[0]) for row in found if search_rows.number_of(row[0]) != search_rows.SINGLE]
    if not long:
        return found
    holders = {term: _long_messages_holding(term, long) for term in {*query.terms, *query.excluded}}
    fitting = set(long).difference(*(holders[term] for term in query.excluded))
    for group in query.needed:
        fitting &= set().union(*(holders[term] for term in group))
    wrong = set(long) - fitting
    return [row for row in found if search_rows.message_of(row[0]) not in wrong]


def _long_messages_holding(term: Term, message_ids: Sequence[int]) -> set[int]:
    where = search_rows.PART if len(term.words) > 1 else search_rows.LONG_MESSAGE
    first, last = min(message_ids) * search_rows.ROWS, max(message_ids) * search_rows.ROWS + search_rows.ROWS - 1
    return {search_rows.message_of(row) for row in engines.rows_holding([term], where, first=first, last=last)}


def count(request: SearchRequest) -> Count:
    """How many messages the viewer may see: exact to 2,000, unless far more are hidden from them."""
    found, read_on = take(request, "1", MANY)
    return Count(len(found), is_exact=read_on is None)


def take(request: SearchRequest, columns: str, limit: int, *, before: int | None = None) -> Round:
    """The newest rows up to a limit, and the message under which there may be more; None if these are all."""
    taken: list[Any] = []
    read_on = None
    for found, rest in rounds(request, columns, before=before, size=limit + 1):  # one more shows that there is more
        taken, read_on = [*taken, *found], rest
        if len(taken) > limit:
            return taken[:limit], search_rows.message_of(taken[limit - 1][0])
    return taken, read_on


def _hit(terms: tuple[Term, ...], row: Any) -> Hit:
    row_id, session_id, title, seq, on_path, kind, role, status, agent, model, at, content = row
    return Hit(
        message_id=search_rows.message_of(row_id),
        session_id=as_uuid(session_id),
        title=title,
        seq=seq,
        on_path=bool(on_path),
        kind=kind,
        role=role,
        status=status,
        agent=agent,
        model=model,
        at=at if at.tzinfo else at.replace(tzinfo=UTC),  # SQLite returns UTC times without a zone
        snippet=_snippet(terms, content, row_id),
        is_cut=search_rows.number_of(row_id) == search_rows.WHOLE_BUT_CUT,
    )


def as_uuid(value: UUID | str) -> UUID:
    """SQLite returns ids as text."""
    return value if isinstance(value, UUID) else UUID(value)


def _snippet(terms: tuple[Term, ...], content: str, row_id: int) -> Snippet:
    if not terms:
        return beginning_of(content)
    return snippet_of(content, terms) or _deep_snippet(terms, row_id) or beginning_of(content)


def _deep_snippet(terms: tuple[Term, ...], row_id: int) -> Snippet | None:
    """From the entry: the match is in a tool call, a result, or beyond the stored beginning of the text."""
    message = Message.objects.filter(pk=search_rows.message_of(row_id)).first()
    if message is None or message.body is None:
        return None
    try:
        text = searched_text(entries_of([message])[0])
    except MissingBlob:
        return None
    start, end = 0, search_rows.INDEXED_BYTES
    if search_rows.number_of(row_id) != search_rows.SINGLE:  # only one part of a long text is searched again
        first, last = message.pk * search_rows.ROWS, message.pk * search_rows.ROWS + search_rows.ROWS - 1
        if parts := engines.rows_holding(terms, search_rows.PART, first=first, last=last):
            start, end = SearchRow.objects.values_list("start", "end").get(pk=min(parts))
    return snippet_of(text[start:end], terms)


def find_newest(viewer: Viewer, query: str, *, filters: SessionQuery = SessionQuery()) -> dict[int, UUID]:
    """The newest messages that match and that the viewer may read, newest first, with their sessions."""
    request = build_request(viewer, query, filters)
    rows = take(request, "m.session_id", MOST_HITS)[0] if request else []
    return {search_rows.message_of(row_id): as_uuid(session) for row_id, session in rows}


def find_session_ids(viewer: Viewer, query: str) -> tuple[set[UUID], bool]:
    """The sessions with the newest hits, up to 2,000 of them, and whether these are all."""
    ids: set[UUID] = set()
    read_on: int | None = None
    request = build_request(viewer, query, SessionQuery())
    for found, rest in rounds(request, "m.session_id", size=LARGEST_ROUND) if request else ():
        read_on = rest
        ids |= {as_uuid(session) for _row, session in found}
        if len(ids) > MOST_SESSIONS:
            return ids, False
    return ids, read_on is None
