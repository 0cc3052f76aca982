"""Searching the record: the same on both databases, and never more than the viewer may see."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, given, settings, strategies as st

from history import search
from history.entries import (
    DebugLog,
    Entry,
    ModelInput,
    ModelOutput,
    Reasoning,
    SystemInstructionSet,
    Text,
    ToolRequest,
    ToolResult,
    ToolResults,
)
from history.models import ApiKey, Message, SearchRow, Session
from history.record import recorder, search_rows
from history.search import SessionQuery, engines, finding
from history.search.queries import parse_query
from tests.factories import example_count, without_guards

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(django_user_model: Any) -> Any:
    return django_user_model.objects.create_superuser("root", password="sees everything")


@pytest.fixture
def session(ada: Any) -> Session:
    return recorder.start_session(owner=ada, title="Kitchen")


def user_message(text: str, **fields: Any) -> ModelInput:
    return ModelInput(parts=(Text(text=text),), **fields)


def model_answer(text: str, **fields: Any) -> ModelOutput:
    return ModelOutput(parts=(Text(text=text),), **fields)


def append_to_head(session: Session, *entries: Entry | str) -> list[int]:
    """Append to the head; returns the numbers of the messages."""
    made = [user_message(entry) if isinstance(entry, str) else entry for entry in entries]
    return [appended.seq for appended in recorder.append_many(session, made, after=session.head)]


def key_of(owner: Any, name: str, **fields: Any) -> ApiKey:
    fields = {"scopes": ["read"]} | fields
    return ApiKey.objects.create(name=name, prefix=name, secret_hash=name.encode(), owner=owner, **fields)


def found_seqs(viewer: Any, query: str = "", **filters: Any) -> list[int]:
    """The numbers of the messages found, oldest first."""
    results = search.search(viewer, query, filters=SessionQuery(**filters), limit=100)
    assert results.count.number == len(results.hits)
    return [hit.seq for hit in reversed(results.hits)]


# Words, phrases, scripts.


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("payment", [1, 2]),
        ("PAYMENT failed", [1]),
        ('"payment failed"', [1]),
        ('"failed payment"', []),
        ("pay*", [1, 2, 3]),
        ('"the pay*"', [1, 2]),
        ("payment -failed", [2]),
        ('payment -"payment failed"', [2]),
        ("-payment", [3, 4, 5]),
        ("failed OR brulee", [1, 4]),
        ("payment failed OR went", [1, 2]),
        ("creme brulee", [4]),
        ("CRÈME", [4]),
        ("v1.2", [5]),
        ("v1", [5]),
        ("elsewhere", []),
        ("", [1, 2, 3, 4, 5]),
    ],
)
def test_a_query_finds_what_it_says(ada: Any, session: Session, query: str, matches: list[int]) -> None:
    append_to_head(
        session, "The payment failed again.", "The payment went through.", "Who pays?", "crème BRÛLÉE", "v1.2 of o:1"
    )
    assert found_seqs(ada, query) == matches


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("支付失败", [1]),
        ("支付", [1, 2]),
        ("付", [1, 2]),
        ("付支", []),
        ("支付 -失败", [2]),
        ("iPhone手机", [2]),
        ("iphone", [2]),
        ("コーヒー", [3]),
        ("珈琲", []),
        ("ｺｰﾋｰ", [3]),
        ("結제", []),
        ("결제", [4]),
        ("제", [4]),
        ("결제에 실패", [4]),
        ("हिन्दी", [5]),
        ("محمد", [6]),
    ],
)
def test_every_script_is_found(ada: Any, session: Session, query: str, matches: list[int]) -> None:
    append_to_head(
        session,
        "订单支付失败，请重试",
        "用iPhone手机支付",
        "コーヒーを飲む",
        "결제에 실패했습니다",
        "हिन्दी भाषा",
        "كتب مُحَمَّد",
    )
    assert found_seqs(ada, query) == matches


def test_tool_arguments_results_and_thoughts_are_found(ada: Any, session: Session) -> None:
    asked = ModelOutput(
        parts=(Reasoning(text="perhaps saffron"), ToolRequest(call_id="1", name="grep", arguments='{"for": "thyme"}'))
    )
    results = ToolResults(results=(ToolResult(call_id="1", name="grep", parts=(Text(text="rosemary found"),)),))
    append_to_head(session, "spices?", asked, results)
    assert found_seqs(ada, "thyme") == [2]
    assert found_seqs(ada, "saffron") == [2]
    assert found_seqs(ada, "rosemary") == [3]
    assert found_seqs(ada, "grep") == [2, 3]
    hit = search.search(ada, "thyme").hits[0]
    assert ("thyme", True) in hit.snippet.pieces


def test_bookkeeping_is_not_found(ada: Any, session: Session) -> None:
    append_to_head(session, SystemInstructionSet(instruction="nutmeg"), DebugLog(message="nutmeg"), "no spice")
    assert found_seqs(ada, "nutmeg") == []
    assert found_seqs(ada) == [3]


def test_a_hit_says_where_it_stands(ada: Any, session: Session) -> None:
    append_to_head(session, "salt", model_answer("pepper", model="chef-1", agent="cook"))
    hit = search.search(ada, "pepper").hits[0]
    assert (hit.session_id, hit.title, hit.seq) == (session.pk, "Kitchen", 2)
    assert (hit.kind, hit.role, hit.status, hit.model, hit.agent) == (
        "model_output", "assistant", "complete", "chef-1", "cook",
    )  # fmt: skip
    assert hit.on_path
    assert not hit.is_cut
    assert hit.at == Message.objects.get(pk=hit.message_id).created_at
    assert hit.snippet.pieces == (("pepper", True),)


# What an engine might misunderstand.


@pytest.mark.parametrize(
    "query",
    [
        '"', '""', "*", "-", "-*", "OR", "OR OR", "NEAR(a b)", "tokens:a", "tokens : a", "a AND", "NOT", "^a",
        "{a b}: c", "a + b",
        "'", "a' OR 1=1 --", "\\", "a\\", "!a", "a & b", "a | b", "(a", "a)", "a <-> b", "a:*", ":o1", ":m",
        "%s", "%", "\0", "a\0b",
        "\ud800", "a" * 10_000, "a " * 5_000, '"' + "支" * 3_000, "-a -b", "😀", "a:b:c", "$$", "E'a'",
    ],
)  # fmt: skip
def test_no_query_is_an_error(ada: Any, session: Session, query: str) -> None:
    append_to_head(session, "something")
    search.search(ada, query)
    search.facets(ada, query)


@pytest.mark.parametrize("query", ["!!!", '""', "-", "😀", "OR"])
def test_a_text_without_a_word_finds_nothing_and_no_text_everything(ada: Any, session: Session, query: str) -> None:
    append_to_head(session, "something")
    assert found_seqs(ada, query) == []
    assert search.facets(ada, query)["role"] == {}
    assert len(found_seqs(ada, " ")) == 1


@settings(max_examples=example_count(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(query=st.one_of(st.text(max_size=50), st.text(st.sampled_from("ab \"-*ORNT支():^{}'\\&|!<>%"), max_size=30)))
def test_no_random_query_is_an_error(ada: Any, query: str) -> None:
    search.search(ada, query)


@pytest.mark.parametrize("query", [":o{bob}", "o{bob}", '":o{bob}"', ":m x", "m*", "o*", '":o*"', ":w OR :p"])
def test_scope_cannot_be_typed(ada: Any, bob: Any, admin: Any, query: str) -> None:
    append_to_head(recorder.start_session(owner=bob), "bob's secret")
    typed = query.format(bob=bob.pk)
    assert parse_query(typed).terms
    assert found_seqs(ada, typed) == found_seqs(bob, typed) == found_seqs(admin, typed) == []


def test_nul_and_lone_surrogates_are_stored_and_searched(ada: Any, session: Session) -> None:
    append_to_head(session, "salt\0pepper \ud800 thyme")
    assert found_seqs(ada, "salt") == found_seqs(ada, "pepper thyme") == [1]
    assert search.search(ada, "thyme").hits[0].snippet.text


# Long texts.


def test_words_far_apart_in_a_long_text_are_found_together(ada: Any, session: Session) -> None:
    append_to_head(session, "first " + "filler words here " * 6_000 + "last", "first alone")
    assert len(SearchRow.objects.filter(message__seq=1)) > 2
    assert found_seqs(ada, "first last") == [1]
    assert found_seqs(ada, "first -last") == [2]
    assert found_seqs(ada, "filler first") == [1]


def test_phrases_are_found_across_the_borders_of_rows(ada: Any, session: Session) -> None:
    words = [f"w{number}" for number in range(20_000)]
    append_to_head(session, " ".join(words))
    assert SearchRow.objects.count() == 4
    for border in (search_rows.ROW_WORDS, 2 * search_rows.ROW_WORDS - search_rows.OVERLAP):
        for start in range(border - search_rows.OVERLAP - 1, border + 1):
            phrase = " ".join(words[start : start + search_rows.OVERLAP + 1])
            assert found_seqs(ada, f'"{phrase}"') == [1], start
    assert found_seqs(ada, '"w3 w5"') == []
    assert found_seqs(ada, '"w3 w4" w19999') == [1]
    assert found_seqs(ada, 'w1 -"w3 w4"') == []
    assert found_seqs(ada, 'w1 -"w3 w5"') == [1]


def test_a_word_that_comes_very_often_hides_nothing(ada: Any, session: Session) -> None:
    append_to_head(session, "na " * 3_000 + "batman " + "啊" * 3_000 + "蝙蝠侠")
    assert found_seqs(ada, '"na batman"') == found_seqs(ada, "啊蝙蝠侠") == found_seqs(ada, "na 蝙蝠") == [1]
    assert found_seqs(ada, '"batman na"') == []


on_postgres = pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has hits in their order by itself")


@on_postgres
@pytest.mark.parametrize("numbers", [[], [1], [4, 9], [100]])
def test_the_newest_are_found_however_many_rows_are_looked_through_first(
    ada: Any, session: Session, monkeypatch: pytest.MonkeyPatch, numbers: list[int]
) -> None:
    append_to_head(session, *("often" if number % 3 else "seldom" for number in range(30)))
    monkeypatch.setattr(engines, "_sizes_of_scans", lambda words, limit: iter(numbers))
    newest = [hit.seq for hit in search.search(ada, "often", limit=7).hits]
    assert newest == [30, 29, 27, 26, 24, 23, 21]


@on_postgres
def test_statistics_tell_how_many_rows_are_sizes_of_scans(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    append_to_head(session, *("often" if number % 10 else "seldom" for number in range(100)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE history_searchrow")
    monkeypatch.setattr(engines, "RECENT", 1)
    monkeypatch.setattr(engines, "MOST_RECENT", 50)
    assert list(engines._sizes_of_scans("'often'", 9)) == [20]
    assert list(engines._sizes_of_scans("'seldom'", 9)) == []


def test_a_match_deep_in_a_long_text_is_shown(ada: Any, session: Session) -> None:
    long = "lorem ipsum dolor " * 12_000
    result = ToolResult(call_id="1", name="read", parts=(Text(text=f"{long} the needle lies here {long}"),))
    asked = ModelOutput(parts=(ToolRequest(call_id="1", name="read"),))
    append_to_head(session, "read it", asked, ToolResults(results=(result,)))
    hit = search.search(ada, "needle").hits[0]
    assert ("needle", True) in hit.snippet.pieces
    assert hit.snippet.is_cut_before
    assert "lies here" in hit.snippet.text


def test_text_past_a_megabyte_is_not_indexed_and_says_so(ada: Any, session: Session) -> None:
    append_to_head(session, "early " + "x" * 1_200_000 + " late", "early " + "支" * 500_000 + " late", "early short")
    results = search.search(ada, "early")
    assert [(hit.seq, hit.is_cut) for hit in results.hits] == [(3, False), (2, True), (1, True)]
    assert found_seqs(ada, "late") == []


@pytest.mark.parametrize("word", ["ж" * 60, "w" * 60])
def test_a_megabyte_of_different_words_can_be_stored(ada: Any, session: Session, word: str) -> None:
    append_to_head(session, " ".join(f"{number:05}{word}" for number in range(8_500)))
    assert found_seqs(ada, f"00001{word}") == [1]
    assert found_seqs(ada, f'"00100{word} 00101{word}"') == [1]


# Filters.


def test_filters_narrow_and_several_values_mean_any(ada: Any) -> None:
    key = key_of(ada, "laptop")
    one = recorder.start_session(owner=ada, source="chat")
    other = recorder.start_session(owner=ada, source="relay", client="Codex", api_key=key)
    append_to_head(one, "salt", model_answer("salt", model="m-1", agent="cook"))
    append_to_head(other, "salt", model_answer("salt", model="m-2", status="failed", error="burnt"), "salt")
    call = ModelOutput(parts=(ToolRequest(call_id="1", name="oven"),))
    append_to_head(
        other, call, ToolResults(results=(ToolResult(call_id="1", name="oven", status="failed", error="salt"),))
    )

    assert len(found_seqs(ada, "salt")) == 6
    assert found_seqs(ada, "salt", source=("chat",)) == [1, 2]
    assert found_seqs(ada, "salt", source=("chat", "relay")) == [1, 2, 1, 2, 3, 5]
    assert found_seqs(ada, "salt", client=("Codex",)) == [1, 2, 3, 5]
    assert found_seqs(ada, "salt", client=("codex",)) == []
    assert found_seqs(ada, "salt", key=(key.pk,)) == [1, 2, 3, 5]
    assert found_seqs(ada, "salt", owner=(ada.pk,), agent=("cook",)) == [2]
    assert found_seqs(ada, "salt", owner=(ada.pk + 1,)) == []
    assert found_seqs(ada, "salt", model=("m-1", "m-2")) == [2, 2]
    assert found_seqs(ada, "salt", role=("user",)) == [1, 1, 3]
    assert found_seqs(ada, "salt", role=("tool",)) == [5]
    assert found_seqs(ada, "salt", status=("failed",)) == [2]
    assert found_seqs(ada, "salt", has_error=True) == [2, 5]
    assert found_seqs(ada, "salt", has_error=False) == [1, 2, 1, 3]
    assert found_seqs(ada, tool=("oven",)) == [4, 5]
    assert found_seqs(ada, "salt", tool=("oven",), role=("tool",)) == [5]


def test_a_search_can_stay_in_one_session(ada: Any) -> None:
    sessions = [recorder.start_session(owner=ada) for _ in range(3)]
    for session in sessions:
        append_to_head(session, "salt")
    results = search.search(ada, "salt", filters=SessionQuery(session=(sessions[1].pk,)))
    assert [hit.session_id for hit in results.hits] == [sessions[1].pk]


def test_dates_are_exact(ada: Any, session: Session) -> None:
    noon = datetime(2026, 3, 31, 12, tzinfo=UTC)
    times = [noon - timedelta(days=400), noon, noon + timedelta(hours=13), noon + timedelta(days=40)]
    append_to_head(session, *(user_message("salt", at=at) for at in times))
    assert found_seqs(ada, "salt", since=noon) == [2, 3, 4]
    assert found_seqs(ada, "salt", since=noon, until=noon + timedelta(hours=13)) == [2]
    assert found_seqs(ada, "salt", until=noon) == [1]
    assert found_seqs(ada, "salt", since=noon + timedelta(microseconds=1), until=noon + timedelta(days=2)) == [3]
    assert found_seqs(ada, "salt", since=noon - timedelta(days=4_000)) == [1, 2, 3, 4]
    assert found_seqs(ada, "salt", since=noon, until=noon - timedelta(days=1)) == []


def test_a_message_from_the_future_is_found_by_its_date(ada: Any, session: Session) -> None:
    append_to_head(session, user_message("salt", at=timezone.now() + timedelta(days=900)))
    assert found_seqs(ada, "salt", since=timezone.now() - timedelta(days=1)) == [1]


def test_the_ends_of_the_calendar_can_be_asked_for(ada: Any, session: Session) -> None:
    append_to_head(session, "salt")
    east, west = (timezone.get_fixed_timezone(minutes) for minutes in (480, -480))
    first, last = datetime(1, 1, 1, tzinfo=east), datetime(9999, 12, 31, 23, tzinfo=west)
    assert found_seqs(ada, "salt", since=first, until=last) == [1]
    assert found_seqs(ada, "salt", since=datetime(9999, 1, 1, tzinfo=UTC), until=last) == []


# Who sees what.


def test_a_stranger_sees_nothing(ada: Any, bob: Any, session: Session) -> None:
    append_to_head(session, "secret")
    assert found_seqs(ada, "secret") == [1]
    assert found_seqs(bob, "secret") == []
    assert found_seqs(bob) == []
    assert found_seqs(bob, "secret", owner=(ada.pk,)) == []
    assert found_seqs(bob, "secret", session=(session.pk,)) == []
    assert found_seqs(AnonymousUser(), "secret") == []
    assert not any(search.facets(bob, "secret").values())
    assert not any(search.facets(AnonymousUser(), "secret").values())


def test_a_key_sees_what_was_recorded_under_it(ada: Any, bob: Any, admin: Any) -> None:
    key, wide, other = key_of(ada, "one"), key_of(ada, "wide", owner_wide=True), key_of(bob, "other")
    scopes = ["read", "admin"]
    chief, pretender = key_of(admin, "chief", scopes=scopes), key_of(ada, "pretender", scopes=scopes)
    append_to_head(recorder.start_session(owner=ada, api_key=key, source="relay"), "salt")
    append_to_head(recorder.start_session(owner=ada), "pepper", "salt")
    assert found_seqs(key, "salt") == [1]
    assert found_seqs(wide, "salt") == [1, 2]
    assert found_seqs(other, "salt") == []
    assert found_seqs(chief, "salt") == found_seqs(admin, "salt") == [1, 2]
    assert found_seqs(chief) == [1, 1, 2]
    assert found_seqs(pretender) == []


def test_hidden_and_expired_sessions_are_never_found(ada: Any, admin: Any) -> None:
    hidden, expired, held, open_ = (recorder.start_session(owner=ada) for _ in range(4))
    for number, session in enumerate((hidden, expired, held, open_), 1):
        append_to_head(session, *["salt"] * number)
    Session.objects.filter(pk=hidden.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    Session.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    Session.objects.filter(pk=held.pk).update(expires_at=timezone.now() - timedelta(days=1), hold=True)
    for viewer in (ada, admin):
        assert search.search(viewer, "salt").count.number == 7
        assert {hit.session_id for hit in search.search(viewer, "salt").hits} == {held.pk, open_.pk}
        assert search.facets(viewer, "salt")["role"] == {"user": search.Count(7)}


def test_hidden_hits_do_not_empty_a_page(ada: Any) -> None:
    old = recorder.start_session(owner=ada)
    append_to_head(old, *["salt"] * 30)
    hidden = recorder.start_session(owner=ada)
    append_to_head(hidden, *["salt"] * 300)
    Session.objects.filter(pk=hidden.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    results = search.search(ada, "salt", limit=20)
    assert [hit.seq for hit in results.hits] == list(range(30, 10, -1))
    assert (results.count.number, results.count.is_exact) == (30, True)


def test_a_small_owner_is_found_behind_many_others(ada: Any, bob: Any) -> None:
    append_to_head(recorder.start_session(owner=bob), "salt")
    crowd = recorder.start_session(owner=ada)
    append_to_head(crowd, *["salt"] * 2_500)
    assert found_seqs(bob, "salt") == [1]
    results = search.search(ada, "salt")
    assert (results.count.number, results.count.is_exact, str(results.count)) == (2_000, False, "2,000+")


def test_removed_sessions_leave_no_words_behind(ada: Any, session: Session) -> None:
    append_to_head(session, "salt")
    without_guards(Message.objects.all()).delete()
    assert not SearchRow.objects.exists()
    assert found_seqs(ada, "salt") == []
    append_to_head(recorder.start_session(owner=ada), "pepper")
    assert found_seqs(ada, "pepper") == [1]


# Pages.


@pytest.mark.parametrize("limit", [1, 7, 20])
def test_pages_have_no_gap_and_no_repetition(ada: Any, limit: int) -> None:
    shown, hidden = recorder.start_session(owner=ada), recorder.start_session(owner=ada)
    for start in range(0, 60, 10):
        append_to_head(shown, *[f"salt {number}" for number in range(start, start + 10)])
        append_to_head(hidden, *["salt"] * 9)
    Session.objects.filter(pk=hidden.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    seen: list[int] = []
    before = None
    while True:
        page = search.search(ada, "salt", before=before, limit=limit)
        seen += [hit.seq for hit in page.hits]
        if page.next_before is None:
            break
        before = page.next_before
    assert seen == list(range(60, 0, -1))


def test_a_page_cut_short_by_hidden_hits_still_leads_on(ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    old, hidden = recorder.start_session(owner=ada), recorder.start_session(owner=ada)
    append_to_head(old, *["salt"] * 5)
    append_to_head(hidden, *["salt"] * 300)
    Session.objects.filter(pk=hidden.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    monkeypatch.setattr(finding, "ROUNDS", 2)
    results = search.search(ada, "salt", limit=10)
    assert list(results.hits) == []
    pages = 1
    while not results.hits:
        assert results.next_before is not None
        results = search.search(ada, "salt", limit=10, before=results.next_before)
        pages += 1
    assert pages > 2
    assert [hit.seq for hit in results.hits] == [5, 4, 3, 2, 1]


def test_what_arrives_meanwhile_does_not_move_a_page(ada: Any, session: Session) -> None:
    append_to_head(session, *["salt"] * 30)
    first = search.search(ada, "salt", limit=10)
    append_to_head(session, "salt", "salt")
    second = search.search(ada, "salt", limit=10, before=first.next_before)
    assert [hit.seq for hit in (*first.hits, *second.hits)] == list(range(30, 10, -1))


@pytest.mark.parametrize("before", [-1, 0, 10**30])
def test_a_page_before_nonsense_is_no_error(ada: Any, session: Session, before: int) -> None:
    append_to_head(session, "salt")
    assert len(search.search(ada, "salt", before=before).hits) == (before > 0)


def test_the_last_page_says_so(ada: Any, session: Session) -> None:
    append_to_head(session, *["salt"] * 20)
    assert search.search(ada, "salt", limit=20).next_before is None
    assert search.search(ada, "salt", limit=19).next_before is not None
    assert search.search(ada, "nothing").next_before is None


# Facets.


def test_facets_count_what_was_found(ada: Any, bob: Any, admin: Any) -> None:
    key = key_of(ada, "laptop")
    relayed = recorder.start_session(owner=ada, source="relay", api_key=key)
    call = ModelOutput(parts=(Text(text="salt"), ToolRequest(call_id="1", name="oven")), model="m-1", agent="cook")
    append_to_head(relayed, "salt", call, ToolResults(results=(ToolResult(call_id="1", name="oven", error="salt"),)))
    append_to_head(
        recorder.start_session(owner=bob), "salt", "pepper", model_answer("salt", status="interrupted", model="m-1")
    )
    exactly = search.Count
    assert search.facets(admin, "salt") == {
        "source": {"relay": exactly(3), "chat": exactly(2)},
        "key": {key.pk: exactly(3)},
        "owner": {ada.pk: exactly(3), bob.pk: exactly(2)},
        "agent": {"cook": exactly(1)},
        "model": {"m-1": exactly(2)},
        "tool": {"oven": exactly(2)},
        "status": {"complete": exactly(4), "interrupted": exactly(1)},
        "role": {"user": exactly(2), "assistant": exactly(2), "tool": exactly(1)},
    }
    assert search.facets(admin, "salt", filters=SessionQuery(role=("tool",)))["owner"] == {ada.pk: exactly(1)}


def test_facets_are_exact_to_two_thousand_and_say_when_there_are_more(ada: Any, session: Session) -> None:
    append_to_head(session, *(model_answer("salt", model="rare") for _ in range(3)))
    append_to_head(session, *(model_answer("salt", model="common") for _ in range(2_100)))
    append_to_head(session, model_answer("salt", model="rare"))
    models = search.facets(ada, "salt")["model"]
    assert models == {"common": search.Count(2_000, is_exact=False), "rare": search.Count(4)}
    assert str(models["common"]) == "2,000+"


# The index is a projection.


def test_a_rebuilt_index_finds_the_same_in_the_same_order(ada: Any) -> None:
    sessions = [recorder.start_session(owner=ada) for _ in range(3)]
    for number in range(5):
        for session in sessions:
            append_to_head(session, f"salt {number}")
    append_to_head(sessions[0], "salt " + "long text " * 9_000)
    before = search.search(ada, "salt", limit=100).hits
    rows_before = list(SearchRow.objects.order_by("pk").values_list("pk", "start", "end"))
    heard: list[int] = []
    assert search.rebuild(progress=heard.append) == 16
    assert heard[-1] == 16
    assert search.search(ada, "salt", limit=100).hits == before
    assert list(SearchRow.objects.order_by("pk").values_list("pk", "start", "end")) == rows_before
    SearchRow.objects.filter(message__session=sessions[1]).delete()
    assert len(search.search(ada, "salt", limit=100).hits) == 11
    search.rebuild(sessions[1])
    assert search.search(ada, "salt", limit=100).hits == before
