"""Reading: who may see what, pages in both directions, any version of the past, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st
from pytest_django import DjangoAssertNumQueries

from history.access.permissions import Purpose, sessions_for
from history.context.values import ContextOptions
from history.entries import DebugLog, HeadMoved, ModelOutput, NotebookSet, SystemInstructionSet, ToolResults
from history.errors import NoSuchEntry
from history.models import Session
from history.record import recorder, selectors
from tests.factories import (
    create_chat,
    example_count,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
)
from tests.history.conformance.parley import ParleyStore
from tests.history.conformance.plain import PlainStore

pytestmark = pytest.mark.django_db


def contents(session: Session, **where: Any) -> list[str]:
    return [message.content for message in selectors.messages_of(session, **where).messages]


def numbers(session: Session, **where: Any) -> list[int]:
    return [message.seq for message in selectors.messages_of(session, **where).messages]


def test_one_history_per_agent_and_workspace_is_a_filter(ada: Any, bob: Any) -> None:
    here = create_chat(ada, "a", agent="operator", workspace="/srv/one")
    create_chat(ada, "b", agent="operator", workspace="/srv/two")
    create_chat(bob, "c", agent="operator", workspace="/srv/one")
    assert list(sessions_for(ada, Purpose.LIST).filter(agent="operator", workspace="/srv/one")) == [here]


# Pages.


def test_the_newest_twenty_are_the_default_page_oldest_first(ada: Any) -> None:
    session = create_chat(ada, *(f"text {number}" for number in range(45)))
    page = selectors.messages_of(session)
    assert [message.seq for message in page.messages] == list(range(26, 46))
    assert (page.has_older, page.has_newer) == (True, False)


def test_pages_meet_at_the_entry_that_was_named(ada: Any) -> None:
    session = create_chat(ada, *(f"text {number}" for number in range(45)))
    assert numbers(session, before=26) == list(range(6, 26))
    assert numbers(session, before=6) == [1, 2, 3, 4, 5]
    assert numbers(session, after=5, limit=3) == [6, 7, 8]
    assert numbers(session, after=45) == []
    assert numbers(session, before=1) == []


def test_a_page_says_whether_there_is_more_on_either_side_even_when_it_is_empty(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three")
    pages = {
        (where, number): selectors.messages_of(session, **{where: number, "limit": 1})
        for where in ("before", "after")
        for number in (0, 1, 2, 3, 4)
    }
    sides = {place: (page.has_older, page.has_newer) for place, page in pages.items()}
    assert sides == {
        ("before", 0): (False, True), ("before", 1): (False, True), ("before", 2): (False, True),
        ("before", 3): (True, True), ("before", 4): (True, False),
        ("after", 0): (False, True), ("after", 1): (True, True), ("after", 2): (True, False),
        ("after", 3): (True, False), ("after", 4): (True, False),
    }  # fmt: skip


@pytest.mark.parametrize("limit", [0, -5, 1])
def test_a_page_holds_at_least_one_entry(ada: Any, limit: int) -> None:
    assert numbers(create_chat(ada, "one", "two"), limit=limit) == [2]


def test_a_page_holds_at_most_five_hundred(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append_many(session, [model_input(f"text {number}") for number in range(510)], after=0)
    assert len(numbers(session, limit=10_000)) == 500


@pytest.mark.parametrize("where", [{"limit": 1}, {"before": 5, "limit": 1}, {"after": 2, "limit": 1}, {"before": 4}])
def test_an_instruction_between_a_call_and_its_results_does_not_part_them(ada: Any, where: dict[str, int]) -> None:
    session = create_chat(ada, "look")
    talk = [
        model_output("", tool_request("c1")),
        SystemInstructionSet(instruction="x"),
        NotebookSet(content="y"),
        tool_results(tool_result("c1")),
    ]
    recorder.append_many(session, talk, after=1)
    assert numbers(session, **where)[-4:] == [2, 3, 4, 5]


def test_another_branch_is_paged_like_the_path(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    leaf = recorder.append_many(session, [model_input("drei"), model_output("vier")], after=2)[-1].seq
    assert contents(session, leaf=leaf) == ["one", "two", "drei", "vier"]
    assert numbers(session, leaf=leaf, limit=1) == [6]
    assert numbers(session, leaf=leaf, before=6, limit=2) == [2, 5]
    assert numbers(session, leaf=leaf, after=1, limit=2) == [2, 5]
    assert numbers(session, leaf=2) == [1, 2]
    assert session.head == 4


def test_looking_at_a_branch_moves_nothing(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    leaf = recorder.append(session, model_input("beside"), after=1).seq
    selectors.messages_of(session, leaf=leaf)
    selectors.snapshot(session, leaf=leaf)
    assert Session.objects.get(pk=session.pk).head == 2


def test_debug_logs_and_moves_are_in_the_ledger_but_on_no_page(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    recorder.append(session, DebugLog(message="slow"), after=2)
    assert contents(session) == ["one", "two"]
    recorder.move_head(session, to=1)
    assert contents(session) == ["one"]
    kinds = [message.kind for message in selectors.ledger_of(session)]
    assert kinds == ["model_input", "model_output", "debug_log", "head_moved"]
    assert [message.seq for message in selectors.ledger_of(session, after=2, limit=1)] == [3]


# What it costs.


def test_queries_do_not_grow_with_the_length_of_a_session(
    ada: Any, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    short, long = create_chat(ada, "one", "two"), create_chat(ada, *(f"text {number}" for number in range(400)))
    for session in (short, long):
        with django_assert_max_num_queries(3):
            selectors.messages_of(session)
        with django_assert_max_num_queries(5):
            selectors.snapshot(session, options=ContextOptions(max_turns=3))


def test_long_texts_of_a_page_are_fetched_together(
    ada: Any, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    session = create_chat(ada, *(f"{number} " * 40_000 for number in range(4)))
    page = selectors.messages_of(session)
    with django_assert_max_num_queries(1):
        assert [len(entry.text) for entry in selectors.entries_of(page.messages)] == [80_000] * 4


# Snapshots and the past.


def test_a_snapshot_does_not_change_with_what_is_appended_later(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    before = selectors.snapshot(session)
    recorder.append(session, model_input("three"), after=2)
    recorder.move_head(session, to=1)
    assert (before.version, [node.seq for node in before.nodes]) == (2, [1, 2])
    assert selectors.snapshot(session, at_version=2) == before


def test_a_snapshot_of_a_leaf_that_is_not_there_is_refused(ada: Any) -> None:
    with pytest.raises(NoSuchEntry, match="no entry 9"):
        selectors.snapshot(create_chat(ada, "one"), leaf=9)


STEPS = st.lists(
    st.tuples(st.sampled_from(["said", "answered", "asked", "note", "log", "move", "stale"]), st.integers(0, 30)),
    min_size=1,
    max_size=14,
)


def take(stores: list[tuple[Any, str]], steps: list[tuple[str, int]]) -> None:
    """The same random steps for all stores; places are taken modulo what can be continued after."""
    plain, name = stores[0]
    for word, number in steps:
        version, head = plain.counters(name).version, plain.counters(name).head
        nodes = [node.seq for node in plain.ledger(name) if node.entry.kind not in ("debug_log", "head_moved")]
        place = [0, *nodes][number % (len(nodes) + 1)]
        entries = {
            "move": [HeadMoved(to=place)],
            "stale": [model_input(f"late {version}")],
            "asked": [model_output("", tool_request("c")), tool_results(tool_result("c"))],
            "said": [model_input(f"said {version}")],
            "answered": [model_output(f"answered {version}")],
            "note": [NotebookSet(content=f"note {version}")],
            "log": [DebugLog(message="slow")],
        }[word]
        for store, session in stores:
            store.append_many(session, entries, after=place if word == "stale" else head)


@hypothesis_settings(
    max_examples=example_count(25),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_every_version_of_the_past_is_what_a_plain_replay_gives(ada: Any, steps: list[tuple[str, int]]) -> None:
    store, plain = ParleyStore(ada), PlainStore()
    real, model = store.start(), plain.start()
    take([(plain, model), (store, real)], steps)
    session = store.read(real)
    for version in range(session.version + 1):
        expected = plain.path(model, at_version=version)
        taken = selectors.snapshot(session, at_version=version)
        assert [(node.seq, node.parent) for node in taken.nodes] == [(node.seq, node.parent) for node in expected]
        assert taken.notebook == plain.holding(model, at_version=version).notebook
        page = selectors.messages_of(session, at_version=version, limit=500).messages
        assert [message.seq for message in page] == [node.seq for node in expected]


def test_nothing_of_one_session_appears_in_another(ada: Any) -> None:
    first, second = create_chat(ada, "mine", "yes"), create_chat(ada, "yours", "no")
    recorder.append(second, SystemInstructionSet(instruction="only here"), after=2)
    recorder.append_many(second, [model_output("", tool_request("c1")), tool_results(tool_result("c1"))], after=3)
    assert contents(first) == ["mine", "yes"]
    assert selectors.snapshot(first).system_instruction == ""
    assert not first.tool_calls.exists()
    texts = [entry.text for entry in selectors.entries_of(selectors.ledger_of(first))]
    assert texts == ["mine", "yes"]


def test_a_page_of_entries_is_typed_again(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append_many(session, [model_output("", tool_request("c1")), tool_results(tool_result("c1"))], after=1)
    entries = selectors.entries_of(selectors.messages_of(session).messages)
    assert isinstance(entries[1], ModelOutput)
    assert isinstance(entries[2], ToolResults)
    assert entries[1].tool_requests[0].call_id == entries[2].results[0].call_id
