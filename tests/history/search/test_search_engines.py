"""Both databases hold exactly the words that the tokenizer made, where it made them, and forget them again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings, strategies as st

from history.entries import EMPTY, Entry, JsonObject, ModelInput, ToolResult, ToolResults
from history.models import Message, SearchRow, Session
from history.record import recorder, search_rows
from history.record.search_rows import rows_for
from history.record.search_tokens import words_of
from tests.factories import example_count, without_guards
from tests.history.record.test_search_tokens import texts

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)


def scope(entry: Entry | None = None, *, of_session: JsonObject = EMPTY, **fields: Any) -> list[str]:
    session = Session(pk=UUID(int=5), source="chat", **{"owner_id": 1, **of_session})
    message = Message(session=session, role="user", status="complete", created_at=NOON, **fields)
    return search_rows.scope_words(message, entry or ModelInput())


@pytest.fixture
def message(ada: Any) -> Message:
    session = recorder.start_session(owner=ada)
    return Message.objects.create(
        session=session, seq=1, parent_seq=0, on_path=True, moved_head=True, kind="model_input", role="user", body="{}",
        salt=b"", created_at=NOON, fingerprint=b"", digest=b"", seal=b"",
    )  # fmt: skip


def stored_words(row: SearchRow) -> list[str]:
    """What the engine itself holds of a row, in order."""
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT lexeme FROM history_searchrow, unnest(tokens), unnest(positions) AS place WHERE id = %s "
                "ORDER BY place",
                [row.pk],
            )
        else:
            cursor.execute(
                "CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, history_searchindex, instance)"
            )
            cursor.execute("SELECT term FROM temp.words WHERE doc = %s ORDER BY offset", [row.pk])
        return [word for (word,) in cursor.fetchall()]


@pytest.mark.django_db
@settings(max_examples=example_count(80), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(texts, st.text(max_size=200)))
def test_the_engine_holds_the_words_that_the_tokenizer_made(message: Message, text: str) -> None:
    SearchRow.objects.all().delete()
    (row,) = rows_for(message_id=message.pk, text=text, scope=scope())
    row.save(force_insert=True)
    assert stored_words(row) == words_of(text) + scope()


@pytest.mark.django_db
def test_what_is_deleted_is_forgotten(message: Message) -> None:
    SearchRow.objects.bulk_create(rows_for(message_id=message.pk, text="salt " * 600, scope=scope()))
    kept = list(SearchRow.objects.all())
    assert stored_words(kept[0])
    without_guards(Session.objects.all()).delete()
    assert [stored_words(row) for row in kept] == [[] for _ in kept]
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO history_searchindex(history_searchindex) VALUES ('integrity-check')")


@pytest.mark.django_db(transaction=True)
def test_a_database_that_is_emptied_forgets_everything(message: Message) -> None:
    """The teardown of a transactional test empties all tables: the index must allow it, and follow."""
    from django.core.management import call_command

    SearchRow.objects.bulk_create(rows_for(message_id=message.pk, text="salt", scope=scope()))
    (row,) = SearchRow.objects.all()
    call_command("flush", interactive=False, verbosity=0)
    assert not SearchRow.objects.exists()
    assert stored_words(row) == []


# Rows, before they are stored.


def test_a_short_text_is_one_row_with_its_scope_at_the_end() -> None:
    results = tuple(ToolResult(call_id=call_id, name="oven", status="failed") for call_id in ("1", "2"))
    of_session = {"owner_id": 7, "api_key_id": 3, "client": "Codex"}
    everything = scope(ToolResults(results=results), of_session=of_session, agent="cook", model="m-1")
    (row,) = rows_for(message_id=2, text="Salt, pepper", scope=everything)
    words = row.tokens.split()
    assert words[:2] == ["salt", "pepper"]
    assert all(re.fullmatch(":[0-9a-z]+", word) for word in words[2:])
    assert {":m", ":o7", ":k3", ":t202603", ":e", f":i{UUID(int=5).hex}"} < set(words)
    assert len(words) == len(set(words)) == 2 + 13
    assert (row.pk, row.message_id, row.start, row.end) == (2 * search_rows.ROWS, 2, 0, 12)


def test_a_long_text_has_parts_that_overlap_and_one_row_of_its_different_words() -> None:
    text = " ".join(f"w{number}" for number in range(20_000))
    whole, *parts = rows_for(message_id=2, text=text, scope=scope())
    assert search_rows.number_of(whole.pk) == search_rows.WHOLE
    assert set(words_of(text)) < set(whole.tokens.split())
    assert search_rows.LONG_MESSAGE in whole.tokens.split()
    for part in parts:
        words = part.tokens.split()
        assert words[-1] == search_rows.PART
        assert words[:-1] == words_of(text[part.start : part.end])
        assert len(words) <= search_rows.ROW_WORDS + 1
    for one, next_ in pairwise(parts):
        assert one.tokens.split()[-1 - search_rows.OVERLAP : -1] == next_.tokens.split()[: search_rows.OVERLAP]


@settings(max_examples=example_count(30), deadline=None)
@given(
    words=st.lists(st.sampled_from(["a", "bb", "支", "ж" * 64, "é"]), min_size=1, max_size=60),
    times=st.integers(1, 400),
)
def test_no_row_is_more_than_an_engine_can_hold(words: list[str], times: int) -> None:
    text = " ".join(words * times)
    made = rows_for(message_id=2, text=text, scope=scope())
    for row in made:
        tokens = row.tokens.split()
        assert max(tokens.count(word) for word in set(tokens)) <= search_rows.ROW_REPEATS
        assert len(tokens) <= search_rows.ROW_WORDS + 20
        assert sum(len(word.encode()) + search_rows.WORD_BYTES for word in tokens) < 2**20
    assert made[-1].end == len(text)


def test_a_text_of_one_repeated_character_still_has_numbers_enough_for_its_rows() -> None:
    made = rows_for(message_id=2, text="a " * 600_000, scope=scope())
    assert len(made) < search_rows.ROWS - search_rows.FIRST_PART
    assert {search_rows.message_of(row.pk) for row in made} == {2}
    assert search_rows.number_of(made[0].pk) == search_rows.WHOLE_BUT_CUT
