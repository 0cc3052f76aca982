"""Summaries in the record: they stand for the same entries after a trim, in a fork, and however little is read.

Paths are random: turns, summaries of any of their entries, retractions, and heads that go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import override_settings
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from history import retention
from history.context.rendering import render_context
from history.context.values import ContextOptions
from history.entries import DebugLog, Entry, MaskedResult, Node, Retracted, Summary, SystemInstructionSet
from history.models import Message
from history.record import recorder, selectors
from tests.factories import (
    context_to_bytes,
    example_count,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
)
from tests.history.conformance.parley import ParleyStore, told_in
from tests.history.conformance.sent_messages import sent_messages_of
from tests.history.conformance.state_machine import texts_in, without
from tests.history.conformance.store import SentMessage
from tests.history.context.strategies import options, paths

pytestmark = [pytest.mark.django_db, pytest.mark.runs_first]

# A failure prints its steps; to shrink them takes minutes.
property_test = settings(
    max_examples=example_count(30),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
NUMBER = st.integers(0, 1_000)
STEPS = st.lists(
    st.one_of(
        st.just("turn"),
        st.just("turn"),
        st.tuples(st.just("summary"), NUMBER, NUMBER),
        st.tuples(st.just("summary"), NUMBER, NUMBER),
        st.tuples(st.just("take back"), NUMBER),
        st.tuples(st.just("go back"), NUMBER),
        st.just("instruct"),
    ),
    min_size=5,
    max_size=16,
)


def walk(store: ParleyStore, steps: list[Any], *, session: str = "") -> str:
    """A relayed session in which this has happened."""
    session = session or store.start(source="relay")
    left_standing = store.read(session).trimmed_through  # nothing continues after what a trim left there
    path = {node.seq: node.entry for node in store.path(session)}

    def add(*entries: Entry) -> None:
        stored = store.append_many(session, entries, after=max(path, default=0))
        path.update(zip((one.seq for one in stored), entries, strict=True))

    for number, step in enumerate(steps):
        seqs = sorted(path)
        match step:
            case "turn":
                called, found = (
                    model_output("", tool_request(f"c{number}")),
                    tool_results(tool_result(f"c{number}", f"r{number}")),
                )
                add(model_input(f"q{number}"), called, found, model_output(f"a{number}"))
            case "instruct":
                add(SystemInstructionSet(instruction=f"i{number}"))
            case ("summary", one, other) if seqs:
                first, last = sorted((seqs[one % len(seqs)], seqs[other % len(seqs)]))
                add(Summary(first=first, last=last, summary=f"s{number}", masks=(MaskedResult(seq=last, index=0),)))
            case ("take back", which) if written := [seq for seq in seqs if isinstance(path[seq], Summary)]:
                add(Retracted(seq=written[which % len(written)]))
            case ("go back", where) if places := [seq for seq in seqs if seq > left_standing]:
                head = places[where % len(places)]
                store.move_head(session, to=head)
                path = {seq: entry for seq, entry in path.items() if seq <= head}
    return session


@contextmanager
def undone() -> Iterator[None]:
    """Examples know nothing of each other."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def trimmed(store: ParleyStore, session: str, limit: int) -> set[int]:
    """Trim it; returns the numbers that are gone."""
    with override_settings(CHAT_HISTORY_MAX_MESSAGES=limit):
        retention.purge(dry_run=False)
    kept = Message.objects.filter(session=UUID(session)).values_list("seq", flat=True)
    return set(range(1, store.read(session).version + 1)) - set(kept)


@property_test
@given(steps=STEPS, limit=st.integers(1, 12))
def test_a_trim_changes_nothing_in_what_is_told_of_the_rest(ada: Any, steps: list[Any], limit: int) -> None:
    store = ParleyStore(ada)
    with undone():
        session = walk(store, steps)
        before = store.sent_messages(session)
        gone = trimmed(store, session, limit)
        assert store.sent_messages(session) == without(before, gone)


@property_test
@given(steps=STEPS, limit=st.integers(1, 12), later=STEPS)
def test_a_fork_tells_what_its_original_tells(ada: Any, steps: list[Any], limit: int, later: list[Any]) -> None:
    store = ParleyStore(ada)
    with undone():
        session = walk(store, steps)
        trimmed(store, session, limit)
        walk(store, later, session=session)
        copy = store.fork(session, at=store.counters(session).head)
        assert texts_in(store.sent_messages(copy)) == texts_in(told_by_entries(store, session))
        assert store.verify(copy) == []


def told_by_entries(store: ParleyStore, session: str) -> list[SentMessage]:
    """What is told, but no summary that stands only for numbers beside the path: in a fork there are none."""
    path = store.path(session)
    return sent_messages_of(
        path, among={*range(1, store.read(session).trimmed_through + 1), *(node.seq for node in path)}
    )


@settings(property_test, max_examples=example_count(80))
@given(path=paths(), wanted=options(), first_load=st.integers(1, 4))
def test_what_is_read_under_limits_renders_like_the_whole_path(
    ada: Any, monkeypatch: pytest.MonkeyPatch, path: tuple[Node, ...], wanted: ContextOptions, first_load: int
) -> None:
    monkeypatch.setattr(selectors, "FIRST_LOAD", first_load)  # so that a short path has many pages
    session = recorder.start_session(owner=ada, source="relay")
    for node in path:
        # What hangs beside the path takes up the numbers that are missing on it.
        beside = [DebugLog(message="beside")] * (node.seq - session.version - 1)
        recorder.append_many(session, [*beside, node.entry], after=session.head)
    part, whole = selectors.snapshot(session, options=wanted), selectors.snapshot(session)
    assert [node.seq for node in whole.nodes] == [node.seq for node in path]
    assert context_to_bytes(render_context(part, wanted)) == context_to_bytes(render_context(whole, wanted))


def test_a_retraction_that_another_summary_stands_for_counts_all_the_same(ada: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(selectors, "FIRST_LOAD", 1)
    store, wanted = ParleyStore(ada), ContextOptions(max_turns=4)
    session = store.start(source="relay")
    turns = [model_input("one"), model_output("two"), Summary(first=1, last=2, summary="short")]
    store.append_many(
        session, [*turns, model_input("three"), Retracted(seq=3), model_output("four"), model_input("five")], after=0
    )
    store.append_many(session, [Summary(first=4, last=6, summary="shorter"), model_input("six")], after=7)
    part = selectors.snapshot(store.read(session), options=wanted)
    assert 4 not in {node.seq for node in part.nodes}
    told = [one.texts[0] for one in told_in(part)]
    assert told == ["one", "two", "shorter", "five", "six"]
