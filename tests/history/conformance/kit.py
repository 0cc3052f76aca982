"""The contract of the record, as tests that know only the verbs of `store.Store`.

To hold another store to it:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore()
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from history.context.values import NO_NOTEBOOK
from history.entries import (
    DebugLog,
    Entry,
    HeadMoved,
    MaskedResult,
    ModelOutput,
    NotebookSet,
    Retracted,
    Summary,
    SystemInstructionSet,
    ToolDefinition,
    ToolResults,
    ToolsOffered,
    Usage,
)
from tests.factories import example_count
from tests.history.conformance.plain import PlainStore
from tests.history.conformance.samples import (
    AT,
    EVERY_KIND,
    HISTORIES,
    answer_with_calls,
    answered,
    outcomes,
    user_message,
)
from tests.history.conformance.store import Holding, Refused, SentMessage, Store

# Each example makes sessions of its own, so one store serves them all.
property_test = settings(
    max_examples=example_count(40),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)


def texts(store: Store, session: str, **where: int) -> list[str]:
    return [node.entry.text for node in store.path(session, **where)]


def sent_texts(store: Store, session: str) -> list[str | None]:
    return [text for one in store.sent_messages(session) for text in one.texts]


def chat(store: Store, *words: str) -> str:
    session = store.start()
    talk = [user_message(word) if place % 2 == 0 else answered(word) for place, word in enumerate(words)]
    store.append_many(session, talk, after=0)
    return session


class StoreContract:
    # Numbers and entries.

    def test_an_empty_session_has_version_zero_and_nothing_on_its_path(self, store: Store) -> None:
        session = store.start()
        assert (store.counters(session).version, store.counters(session).head, store.path(session)) == (0, 0, [])
        assert not store.page(session).numbers

    def test_every_entry_gets_the_next_version_as_its_number(self, store: Store) -> None:
        session = store.start()
        numbers = [store.append(session, user_message(f"n{after}"), after=after).seq for after in range(4)]
        assert numbers == [1, 2, 3, 4]
        assert store.counters(session).version == 4
        assert [(node.seq, node.parent) for node in store.path(session)] == [(1, 0), (2, 1), (3, 2), (4, 3)]

    @pytest.mark.parametrize("name", EVERY_KIND)
    def test_an_entry_comes_back_as_it_was_written(self, store: Store, name: str) -> None:
        session = chat(store, "hello")
        stored = store.append(session, EVERY_KIND[name], after=1)
        node = store.ledger(session)[stored.seq - 1]
        assert (node.seq, node.parent, node.entry) == (2, 1, EVERY_KIND[name])

    def test_what_looks_like_a_reference_or_is_no_number_verifies(self, store: Store) -> None:
        session = chat(store, "hello")
        store.append(
            session, user_message("x", metadata={"$blob": "a" * 64, "$$blob": {"$json_blob": "b" * 64}}), after=1
        )
        store.append(session, answered("x", latency=float("nan"), duration=float("inf")), after=2)
        assert store.verify(session) == []

    def test_a_text_of_a_megabyte_comes_back_whole(self, store: Store) -> None:
        session = chat(store, "hello", "长 text " * 150_000)
        assert texts(store, session)[1] == "长 text " * 150_000

    # Branches.

    def test_two_writers_at_one_parent_give_two_branches(self, store: Store) -> None:
        session = chat(store, "one", "two")
        mine = store.append(session, user_message("mine"), after=2)
        yours = store.append(session, user_message("yours"), after=2)
        assert (mine.moved_head, yours.moved_head) == (True, False)
        assert texts(store, session) == ["one", "two", "mine"]
        assert texts(store, session, leaf=yours.seq) == ["one", "two", "yours"]

    def test_a_late_chain_stays_together_on_its_own_branch(self, store: Store) -> None:
        session = chat(store, "one", "two", "three")
        late = store.append_many(session, [user_message("a"), answered("b"), user_message("c")], after=1)
        assert not any(stored.moved_head for stored in late)
        assert texts(store, session, leaf=late[-1].seq) == ["one", "a", "b", "c"]
        assert texts(store, session) == ["one", "two", "three"]

    @pytest.mark.parametrize("after", [7, -1])
    def test_an_entry_after_one_that_is_not_there_is_refused(self, store: Store, after: int) -> None:
        session = chat(store, "one")
        with pytest.raises(Refused):
            store.append(session, user_message("two"), after=after)
        assert store.counters(session).version == 1

    def test_nothing_continues_after_what_hangs_beside_the_path(self, store: Store) -> None:
        session = chat(store, "one", "two")
        log = store.append(session, DebugLog(message="slow"), after=2)
        moved = store.move_head(session, to=1)
        for leaf in (log.seq, moved.seq):
            with pytest.raises(Refused):
                store.append(session, user_message("on"), after=leaf)
            with pytest.raises(Refused):
                store.move_head(session, to=leaf)
        assert store.counters(session).version == 4

    def test_a_chain_is_stored_as_a_whole_or_not_at_all(self, store: Store) -> None:
        session = chat(store, "one")
        with pytest.raises(Refused):
            store.append_many(session, [answered("two"), outcomes("without_call")], after=1)
        assert texts(store, session) == ["one"]
        assert store.append(session, answered("two"), after=1).seq == 2

    # The head.

    def test_rolling_back_is_an_entry_and_what_was_said_stays(self, store: Store) -> None:
        session = chat(store, "one", "two", "three", "four")
        moved = store.move_head(session, to=2)
        assert (moved.seq, store.counters(session).head) == (5, 2)
        assert texts(store, session) == ["one", "two"]
        assert texts(store, session, leaf=4) == ["one", "two", "three", "four"]
        fact = store.ledger(session)[4].entry
        assert isinstance(fact, HeadMoved)
        assert fact.to == 2

    def test_one_can_begin_again_from_the_start(self, store: Store) -> None:
        session = chat(store, "one", "two")
        store.move_head(session, to=0)
        assert texts(store, session) == []
        assert store.append(session, user_message("anew"), after=0).moved_head
        assert texts(store, session) == ["anew"]

    def test_switching_between_branches_shows_each_whole(self, store: Store) -> None:
        session = chat(store, "one", "two", "three")
        other = store.append_many(session, [user_message("drei"), answered("vier")], after=2)[-1].seq
        store.move_head(session, to=other)
        assert texts(store, session) == ["one", "two", "drei", "vier"]
        store.move_head(session, to=3)
        assert texts(store, session) == ["one", "two", "three"]

    def test_every_version_of_the_past_can_be_seen(self, store: Store) -> None:
        session = chat(store, "one", "two", "three")
        store.append(session, user_message("late"), after=1)
        store.move_head(session, to=1)
        store.append(session, DebugLog(message="slow"), after=1)
        store.append(session, answered("zwei"), after=1)
        past = [texts(store, session, at_version=version) for version in range(8)]
        whole = ["one", "two", "three"]
        assert past == [[], whole[:1], whole[:2], whole, whole, ["one"], ["one"], ["one", "zwei"]]

    # Pages.

    def test_the_newest_twenty_are_the_default_page(self, store: Store) -> None:
        session = chat(store, *(f"w{number}" for number in range(30)))
        page = store.page(session)
        assert (page.numbers, page.has_older, page.has_newer) == (tuple(range(11, 31)), True, False)

    @property_test
    @given(history=HISTORIES, limit=st.integers(1, 9))
    def test_walking_page_by_page_meets_every_entry_once(self, store: Store, history: list[Entry], limit: int) -> None:
        session = store.start()
        store.append_many(session, history, after=0)
        path = [node.seq for node in store.path(session)]
        page, backwards = store.page(session, limit=limit), [*store.page(session, limit=limit).numbers]
        while page.has_older:
            page = store.page(session, before=page.numbers[0], limit=limit)
            backwards = [*page.numbers, *backwards]
        page, forwards = store.page(session, after=0, limit=limit), [*store.page(session, after=0, limit=limit).numbers]
        while page.has_newer:
            page = store.page(session, after=page.numbers[-1], limit=limit)
            forwards = [*forwards, *page.numbers]
        assert (backwards, forwards) == (path, path)

    @property_test
    @given(history=HISTORIES, limit=st.integers(1, 9), cut=st.integers(0, 60), backwards=st.booleans())
    def test_no_page_separates_a_call_from_its_results(
        self, store: Store, history: list[Entry], limit: int, cut: int, backwards: bool
    ) -> None:
        session = store.start()
        store.append_many(session, history, after=0)
        page = store.page(session, limit=limit, **{"before" if backwards else "after": cut})
        shown = set(page.numbers)
        talk = [node for node in store.path(session) if isinstance(node.entry, ModelOutput | ToolResults)]
        for node, later in pairwise(talk):
            if isinstance(later.entry, ToolResults):
                assert (node.seq in shown) == (later.seq in shown)

    @property_test
    @given(history=HISTORIES, limit=st.integers(1, 9), cut=st.integers(0, 60), backwards=st.booleans())
    def test_a_page_is_what_the_plain_store_cuts_out(
        self, store: Store, history: list[Entry], limit: int, cut: int, backwards: bool
    ) -> None:
        plain = PlainStore()
        sessions = store.start(), plain.start()
        store.append_many(sessions[0], history, after=0)
        plain.append_many(sessions[1], history, after=0)
        where = {"before" if backwards else "after": cut, "limit": limit}
        assert store.page(sessions[0], **where) == plain.page(sessions[1], **where)

    # What holds.

    def test_what_holds_is_what_was_set_last_on_the_path(self, store: Store) -> None:
        session = chat(store, "hello")
        assert store.holding(session) == Holding("", NO_NOTEBOOK, ())
        tools = ToolsOffered(tools=(ToolDefinition(name="clock"),))
        store.append_many(session, [SystemInstructionSet(instruction="be kind"), tools], after=1)
        store.append_many(session, [NotebookSet(content="tea"), SystemInstructionSet(instruction="be brief")], after=3)
        assert store.holding(session) == Holding("be brief", "tea", ("clock",))
        assert store.holding(session, at_version=3) == Holding("be kind", NO_NOTEBOOK, ("clock",))
        store.move_head(session, to=2)
        assert store.holding(session) == Holding("be kind", NO_NOTEBOOK, ())
        assert store.holding(session, leaf=5) == Holding("be brief", "tea", ("clock",))

    # What a model is told.

    def test_a_summary_is_told_in_place_of_its_entries_until_it_is_taken_back(self, store: Store) -> None:
        session = chat(store, "one", "two", "three")
        store.append(session, Summary(first=1, last=2, summary="short"), after=3)
        assert store.sent_messages(session) == [SentMessage((4,), ("short",)), SentMessage((3,), ("three",))]
        store.append(session, Retracted(seq=4), after=4)
        assert [one.numbers for one in store.sent_messages(session)] == [(1,), (2,), (3,)]
        assert [one.numbers for one in store.sent_messages(session, leaf=4)] == [(4,), (3,)]

    def test_a_summary_counts_on_its_own_branch_only(self, store: Store) -> None:
        session = chat(store, "one", "two", "three")
        store.append(session, Summary(first=1, last=2, summary="short"), after=3)
        store.move_head(session, to=3)
        store.append(session, answered("four"), after=3)
        assert sent_texts(store, session) == ["one", "two", "three", "four"]

    def test_a_masked_result_is_not_told(self, store: Store) -> None:
        session = chat(store, "look")
        store.append_many(session, [answer_with_calls("a", "b"), outcomes("a", "b")], after=1)
        store.append(session, Summary(masks=(MaskedResult(seq=3, index=1),)), after=3)
        assert store.sent_messages(session)[-1] == SentMessage((3,), ("noon", None))

    def test_a_fork_tells_what_its_original_tells_by_numbers_of_its_own(self, store: Store) -> None:
        session = chat(store, "one", "two")
        store.move_head(session, to=0)
        store.append_many(
            session,
            [user_message("eins"), answer_with_calls("a"), outcomes("a"), answered("zwei"), user_message("drei")],
            after=0,
        )
        mask = Summary(masks=(MaskedResult(seq=6, index=0),))
        summary, wrong = Summary(first=7, last=7, summary="short"), Summary(first=4, last=8, summary="wrong")
        store.append_many(session, [summary, mask, wrong, Retracted(seq=11), user_message("vier")], after=8)
        copy = store.fork(session, at=13)
        assert [one.texts for one in store.sent_messages(copy)] == [one.texts for one in store.sent_messages(session)]
        assert sent_texts(store, copy) == ["eins", "", None, "short", "drei", "vier"]
        stored = {node.seq: node.entry for node in store.path(copy)}
        assert (stored[6], stored[9]) == (replace(summary, first=4, last=4), Retracted(seq=8, at=stored[9].at))

    # Calls and results.

    def test_results_are_kept_in_the_order_asked(self, store: Store) -> None:
        session = chat(store, "look")
        store.append_many(session, [answer_with_calls("a", "b"), outcomes("b", "a")], after=1)
        stored = store.path(session)[-1].entry
        assert isinstance(stored, ToolResults)
        assert [result.call_id for result in stored.results] == ["a", "b"]

    def test_an_open_call_is_pending_and_a_new_message_answers_it_skipped(self, store: Store) -> None:
        session = chat(store, "look")
        store.append(session, answer_with_calls("a"), after=1)
        assert [call.status for call in store.calls(session)] == ["pending"]
        assert store.append(session, user_message("never mind"), after=2).seq == 4
        assert [(call.status, call.answered_by) for call in store.calls(session)] == [("skipped", 3)]

    @pytest.mark.parametrize("wrong", [outcomes(), outcomes("b"), outcomes("a", "a"), outcomes("a", "b")])
    def test_results_that_do_not_fit_are_refused(self, store: Store, wrong: ToolResults) -> None:
        session = chat(store, "look")
        store.append(session, answer_with_calls("a"), after=1)
        with pytest.raises(Refused):
            store.append(session, wrong, after=2)
        assert store.counters(session).version == 2

    def test_what_others_sent_is_kept_as_it_came(self, store: Store) -> None:
        session = store.start(source="relay")
        store.append_many(
            session, [user_message("look"), answer_with_calls("a"), user_message("next"), outcomes("x")], after=0
        )
        assert [type(node.entry).__name__ for node in store.path(session)] == [
            "ModelInput", "ModelOutput", "ModelInput", "ToolResults",
        ]  # fmt: skip

    def test_a_call_shows_the_outcome_on_the_path(self, store: Store) -> None:
        session = chat(store, "look")
        store.append_many(session, [answer_with_calls("a"), outcomes("a", text="first")], after=1)
        store.append(session, outcomes("a", text="second"), after=2)
        assert [call.result for call in store.calls(session)] == ["first"]
        store.move_head(session, to=4)
        assert [call.result for call in store.calls(session)] == ["second"]
        store.move_head(session, to=2)
        assert [call.status for call in store.calls(session)] == ["pending"]

    def test_an_outcome_beside_the_path_does_not_answer_a_call_on_it(self, store: Store) -> None:
        session = chat(store, "look")
        store.append_many(session, [answer_with_calls("a"), SystemInstructionSet(instruction="be brief")], after=1)
        store.append(session, outcomes("a", text="beside"), after=2)
        assert [call.status for call in store.calls(session)] == ["pending"]
        store.append(session, outcomes("a", text="on it"), after=3)
        assert [call.result for call in store.calls(session)] == ["on it"]

    @pytest.mark.parametrize("call_id", ["c" * 500, "nul\0 and \ud800", ""])
    def test_a_call_with_an_odd_id_is_answered_all_the_same(self, store: Store, call_id: str) -> None:
        session = chat(store, "look")
        store.append(session, answer_with_calls(call_id), after=1)
        store.append(session, outcomes(call_id), after=2)
        assert [call.status for call in store.calls(session)] == ["success"]
        assert store.verify(session) == []

    # Counters, forks, search.

    def test_counters_follow_every_entry(self, store: Store) -> None:
        session = chat(store, "hello")
        usage = Usage(input_tokens=7, output_tokens=3)
        store.append_many(
            session, [answer_with_calls("a", "b", usage=usage), outcomes("a", "b", status="failed")], after=1
        )
        store.append(session, EVERY_KIND["an answer that failed"], after=3)
        counters = store.counters(session)
        assert (counters.messages, counters.tool_calls, counters.errors) == (3, 2, 3)
        assert (counters.input_tokens, counters.output_tokens) == (7, 3)
        store.move_head(session, to=1)
        assert (store.counters(session).messages, store.counters(session).tool_calls) == (1, 2)

    def test_a_fork_copies_its_path_and_shares_nothing_afterwards(self, store: Store) -> None:
        session = chat(store, "one", "two", "three")
        copy = store.fork(session, at=2)
        store.append(copy, user_message("drei"), after=2)
        store.append(session, user_message("four"), after=3)
        assert texts(store, copy) == ["one", "two", "drei"]
        assert texts(store, session) == ["one", "two", "three", "four"]

    def test_a_fork_at_an_entry_that_is_not_there_is_refused(self, store: Store) -> None:
        session = chat(store, "one")
        with pytest.raises(Refused):
            store.fork(session, at=9)

    def test_sessions_are_isolated(self, store: Store) -> None:
        first, second = chat(store, "mine"), chat(store, "yours")
        store.append(first, answered("ours"), after=1)
        assert (texts(store, first), texts(store, second)) == (["mine", "ours"], ["yours"])
        assert store.counters(second).version == 1

    def test_words_are_found_where_they_were_said_called_or_answered(self, store: Store) -> None:
        session = chat(store, "quokka")
        store.append_many(session, [answer_with_calls("a", name="numbat"), outcomes("a", text="wombat")], after=1)
        store.append_many(session, [NotebookSet(content="bilby"), SystemInstructionSet(instruction="dingo")], after=3)
        store.append(session, DebugLog(message="emu"), after=5)
        store.move_head(session, to=0)
        words = ("quokka", "numbat", "wombat", "bilby", "dingo", "emu")
        found = {word: {seq for name, seq in store.search(word) if name == session} for word in words}
        assert found == {"quokka": {1}, "numbat": {2}, "wombat": {3}, "bilby": {4}, "dingo": set(), "emu": set()}

    def test_a_healthy_session_verifies(self, store: Store) -> None:
        session = chat(store, "one", "two")
        for entry in EVERY_KIND.values():
            store.append(session, entry, after=store.counters(session).head)
        store.move_head(session, to=1)
        store.append(session, answered("zwei"), after=1)
        assert store.verify(session) == []
        assert store.verify(store.fork(session, at=2)) == []
        assert AT in {node.entry.at for node in store.ledger(session)}
