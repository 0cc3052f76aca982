"""Search rows: the words of a message, with its scope among them.

One row decides whether a message is found: all of its words, or each different word once if there are too many. Long
messages also have part rows with the words in order, for phrases; they overlap, so that no phrase is cut. Row ids are
in the order of messages. Scope words begin with a colon, as no typed word does, and are last, where no phrase ends.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

from django.db.models import Max, QuerySet

from history.db import bulk
from history.db.transactions import writing
from history.entries import Entry
from history.models import Message, SearchRow, Session
from history.record import projections
from history.record.search_tokens import Word, places_of, words_of
from history.record.selectors import entries_of

INDEXED_BYTES = 1_000_000
ROW_WORDS = 8_000
ROW_REPEATS = 250  # PostgreSQL keeps at most 256 positions of a word
ROW_BYTES = 900_000  # and at most 1 MB of words, with about 5 bytes of its own for each
WORD_BYTES = 5
SHORT_TEXT = 200_000  # characters that can never be too many bytes for a row
OVERLAP = 15  # phrases of one word more are found across the borders of rows

# The numbers of a message's rows.
ROWS = 65_536
SINGLE, WHOLE, WHOLE_BUT_CUT, FIRST_PART = 0, 1, 2, 16

EVERY_MESSAGE, LONG_MESSAGE, PART, HAS_ERROR = ":m", ":w", ":p", ":e"
SOME_DAY = ":t9999"
# Filters whose values are names, and the letter of each in its scope words.
LETTERS = {"source": "s", "client": "c", "agent": "a", "model": "n", "tool": "f", "role": "r", "status": "q"}


def rows_of(message: Message, entry: Entry) -> list[SearchRow]:
    """The unsaved rows of a message, none for bookkeeping."""
    text = projections.searched_text(entry)
    return rows_for(message_id=message.pk, text=text, scope=scope_words(message, entry)) if text else []


def rows_for(*, message_id: int, text: str, scope: Sequence[str]) -> list[SearchRow]:
    """The unsaved rows of a text. What is past 1 MB is not indexed; the row number says so."""
    words = words_of(text) if len(text) <= SHORT_TEXT else []
    is_long = len(text) > SHORT_TEXT or len(words) > ROW_WORDS
    if is_long or (len(words) > ROW_REPEATS and max(Counter(words).values()) > ROW_REPEATS):
        return _rows_of_long(message_id, text, scope)
    return [_row(message_id, SINGLE, [*words, *scope], 0, len(text))]


def message_of(row_id: int) -> int:
    return row_id // ROWS


def number_of(row_id: int) -> int:
    return row_id % ROWS


def scope_words(message: Message, entry: Entry) -> list[str]:
    """The values of a message that searches can filter by, as words. Names that users choose are hashed."""
    session = message.session
    names = [("source", session.source), ("client", session.client), ("agent", message.agent), ("model", message.model)]
    names += [("role", message.role), ("status", message.status)]
    names += [("tool", name) for name in projections.tools_named(entry)]
    words = [EVERY_MESSAGE, number_word("o", session.owner_id), month_word(message.created_at)]
    words += [name_word(LETTERS[name], value) for name, value in names if value]
    if session.api_key_id is not None:
        words.append(number_word("k", session.api_key_id))
    words.append(session_word(session.pk))
    return [*words, HAS_ERROR] if projections.errors_in(entry) else words


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


def _rows_of_long(message_id: int, text: str, scope: Sequence[str]) -> list[SearchRow]:
    indexed = text
    if len(text) * 4 > INDEXED_BYTES:
        indexed = text[:INDEXED_BYTES].encode("utf-8", "replace")[:INDEXED_BYTES].decode("utf-8", "ignore")
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


BATCH = 200
BATCH_CHARS = 4_000_000


def rebuild(session: Session | None = None, *, progress: Callable[[int], object] = lambda done: None) -> int:
    """Replace all search rows while others search and write. `progress` gets the number of messages so far."""
    done = 0
    for ids in _batches(session):
        with writing():
            done += _rebuild(ids)
        progress(done)
    return done


def _batches(session: Session | None) -> Iterator[list[int]]:
    """Ids of messages, oldest first: few at a time if their texts are long, to limit memory."""
    newest = Message.objects.aggregate(newest=Max("pk"))["newest"] or 0  # writers make the rows of later messages
    messages: QuerySet[Message] = Message.objects.filter(pk__lte=newest, **{"session": session} if session else {})
    last = 0
    while sizes := list(messages.filter(pk__gt=last).order_by("pk").values_list("pk", "content_chars")[:BATCH]):
        total = 0
        batch: list[int] = []
        for pk, chars in sizes:
            total += chars
            if batch and total > BATCH_CHARS:
                break
            batch.append(pk)
        yield batch
        last = batch[-1]


def _rebuild(ids: list[int]) -> int:
    messages = list(Message.objects.select_for_update(of=("self",)).select_related("session").filter(pk__in=ids))
    SearchRow.objects.filter(message_id__in=ids).delete()
    rows = []
    for message, entry in zip(messages, entries_of(messages), strict=True):
        if message.body is not None:
            rows += rows_of(message, entry)
    SearchRow.objects.bulk_create(rows, batch_size=500)
    return len(messages)
