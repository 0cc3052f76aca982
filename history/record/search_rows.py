"""Search rows: the words of a message, with its scope among them.

A message has one row that decides whether it is found: all of its words, or each different word once if there are too
many for one row. Long messages also have part rows with the words in order, for phrases. Part rows overlap, so that a
phrase across a border is whole in one of them.

The id of a row is the id of its message and a number within it. So rows are in the order of messages however often the
index is rebuilt.

Scope words begin with a colon. No typed word does, not even as a prefix. They are at the end, where no phrase can run
into them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from history.db import bulk
from history.entries import Entry
from history.models import Message, SearchRow
from history.record import projections
from history.record.search_tokens import Word, places_of, words_of

INDEXED_BYTES = 1_000_000
ROW_WORDS = 8_000
ROW_REPEATS = 250  # PostgreSQL keeps at most 256 positions of a word
ROW_BYTES = 900_000  # and at most 1 MB of words, with about 5 bytes of its own for each
WORD_BYTES = 5
SHORT_TEXT = 200_000  # characters that can never be too many bytes for a row
OVERLAP = 15
PHRASE_WORDS = OVERLAP + 1
"""Phrases up to this length are found across the borders of rows."""

# The numbers of a message's rows.
ROWS = 65_536
SINGLE, WHOLE, WHOLE_BUT_CUT, FIRST_PART = 0, 1, 2, 16

EVERY_MESSAGE, LONG_MESSAGE, PART, HAS_ERROR = ":m", ":w", ":p", ":e"
SOME_DAY = ":t9999"
# Filters whose values are names, and the letter of each in its scope words.
LETTERS = {"source": "s", "client": "c", "agent": "a", "model": "n", "tool": "f", "role": "r", "status": "q"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope:
    """The values of a message that searches can filter by."""

    owner_id: int
    api_key_id: int | None
    source: str
    client: str = ""
    agent: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    role: str
    status: str
    has_error: bool = False
    at: datetime
    session_id: UUID | None = None


def scope_of(message: Message, entry: Entry) -> SearchScope:
    """The scope of a message, from its row, its session's and its entry."""
    session = message.session
    return SearchScope(
        owner_id=session.owner_id,
        api_key_id=session.api_key_id,
        source=session.source,
        client=session.client,
        agent=message.agent,
        model=message.model,
        tools=projections.tools_named(entry),
        role=message.role,
        status=message.status,
        has_error=projections.errors_in(entry) > 0,
        at=message.created_at,
        session_id=session.pk,
    )


def rows_for(*, message_id: int, text: str, scope: SearchScope) -> list[SearchRow]:
    """The unsaved rows of one message. Text past 1 MB is not indexed; the row number says so."""
    words = words_of(text) if len(text) <= SHORT_TEXT else None
    if words is None or len(words) > ROW_WORDS or _is_repetitive(words):
        return _rows_of_long(message_id, text, scope_words(scope))
    return [_row(message_id, SINGLE, [*words, *scope_words(scope)], 0, len(text))]


def message_of(row_id: int) -> int:
    return row_id // ROWS


def number_of(row_id: int) -> int:
    return row_id % ROWS


def scope_words(scope: SearchScope) -> list[str]:
    """The scope as words. Names that users choose are hashed."""
    names = {name: (getattr(scope, name),) for name in LETTERS if name != "tool"} | {"tool": dict.fromkeys(scope.tools)}
    words = [EVERY_MESSAGE, number_word("o", scope.owner_id), month_word(scope.at)]
    words += [name_word(LETTERS[name], value) for name, values in names.items() for value in values if value]
    if scope.api_key_id is not None:
        words.append(number_word("k", scope.api_key_id))
    if scope.session_id is not None:
        words.append(session_word(scope.session_id))
    return [*words, HAS_ERROR] if scope.has_error else words


def number_word(letter: str, number: int) -> str:
    return f":{letter}{number}"


@lru_cache(maxsize=4096)
def name_word(letter: str, name: str) -> str:
    return f":{letter}{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=6).hexdigest()}"


def session_word(session_id: UUID) -> str:
    return f":i{session_id.hex}"


def month_word(at: datetime) -> str:
    """The month in UTC. Future times share a word, so that `since` has an end."""
    at = at.astimezone(UTC)
    return SOME_DAY if at > datetime.now(UTC) + timedelta(days=1) else f":t{at.year:04}{at.month:02}"


def _row(message_id: int, number: int, words: Iterable[str], start: int, end: int) -> SearchRow:
    key, tokens = message_id * ROWS + number, " ".join(words)
    return bulk.new(SearchRow, id=key, message_id=message_id, start=start, end=end, tokens=tokens)


def _is_repetitive(words: Sequence[str]) -> bool:
    return len(words) > ROW_REPEATS and max(Counter(words).values()) > ROW_REPEATS


def _rows_of_long(message_id: int, text: str, scope: list[str]) -> list[SearchRow]:
    indexed = _first_megabyte(text)
    parts = list(_parts(places_of(indexed)))
    if len(parts) == 1 and len(indexed) == len(text):
        return [_row(message_id, SINGLE, [*(word.text for word in parts[0]), *scope], 0, len(text))]
    different, is_cut = _different_words(word for part in parts for word in part)
    number = WHOLE_BUT_CUT if is_cut or len(indexed) < len(text) else WHOLE
    found = [_row(message_id, number, [*different, *scope, LONG_MESSAGE], 0, len(indexed))]
    for index, part in enumerate(parts):
        words = [*(word.text for word in part), PART]
        found.append(_row(message_id, FIRST_PART + index, words, part[0].start, part[-1].end))
    return found


def _first_megabyte(text: str) -> str:
    if len(text) * 4 <= INDEXED_BYTES:
        return text
    return text[:INDEXED_BYTES].encode("utf-8", "replace")[:INDEXED_BYTES].decode("utf-8", "ignore")


def _parts(words: Sequence[Word]) -> Iterator[Sequence[Word]]:
    """Sections that fit into a row, each beginning with the last words of the previous one. At least one."""
    start = 0
    while True:
        end = _end_of_part(words, start)
        yield words[start:end]
        if end >= len(words):
            return
        start = end - OVERLAP


def _end_of_part(words: Sequence[Word], start: int) -> int:
    counts: dict[str, int] = {}
    size = 0
    for place in range(start, min(start + ROW_WORDS, len(words))):
        word = words[place].text
        counts[word] = count = counts.get(word, 0) + 1
        size += len(word.encode()) + WORD_BYTES
        if count > ROW_REPEATS or size > ROW_BYTES:
            return place
    return min(start + ROW_WORDS, len(words))


def _different_words(words: Iterable[Word]) -> tuple[list[str], bool]:
    """Each word once, as far as they fit into a row, and whether there were more."""
    different = list(dict.fromkeys(word.text for word in words))
    size = 0
    for place, word in enumerate(different):
        size += len(word.encode()) + WORD_BYTES
        if size > ROW_BYTES:
            return different[:place], True
    return different, False
