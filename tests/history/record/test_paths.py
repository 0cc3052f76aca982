"""Walking the tree of one session: from any entry to the path, and to the head of any version."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, given, settings as how, strategies as st

from history.models import Message, Session
from history.record import paths, recorder, selectors
from history.transcripts.page import TranscriptEntry, TranscriptPosition, read_page, read_shared
from tests.factories import create_chat, example_count, model_input, model_output

pytestmark = pytest.mark.django_db


def forked_talk(owner: Any) -> Session:
    """1 ─ 2 ─ 3 ─ 4   is the path; 2 ─ 5 ─ 6 and 5 ─ 7 lie beside it."""
    session = create_chat(owner, "one", "two", "three", "four")
    recorder.append_many(session, [model_input("five"), model_output("six")], after=2)
    recorder.append(session, model_output("seven"), after=5)
    return session


@pytest.mark.parametrize(
    ("leaf", "beside", "joins"), [(4, [], 4), (2, [], 2), (5, [5], 2), (6, [6, 5], 2), (7, [7, 5], 2), (99, [], 0)]
)
def test_climbing_stops_where_the_path_begins(ada: Any, leaf: int, beside: list[int], joins: int) -> None:
    assert paths.climb(forked_talk(ada).pk, leaf) == (beside, joins)


def test_a_branch_from_the_very_start_joins_nowhere(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    recorder.append_many(session, [model_input("eins"), model_output("zwei")], after=0)
    assert paths.climb(session.pk, 4) == ([4, 3], 0)


def test_climbing_never_leaves_the_session(ada: Any) -> None:
    create_chat(ada, "a", "b", "c")
    session = create_chat(ada, "one")
    recorder.append(session, model_input("eins"), after=0)
    assert paths.climb(session.pk, 2) == ([2], 0)


def test_the_head_of_every_version_is_what_it_was_then(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    heads = [0]
    recorder.append(session, model_input("one"), after=0)
    heads.append(session.head)
    recorder.append(session, model_input("beside"), after=0)
    heads.append(session.head)
    recorder.move_head(session, to=2)
    heads.append(session.head)
    recorder.append(session, model_output("two"), after=2)
    heads.append(session.head)
    recorder.move_head(session, to=0)
    heads.append(session.head)
    assert heads == [0, 1, 1, 2, 4, 0]
    assert [paths.head_at(session, version) for version in range(6)] == heads
    assert paths.head_at(session, 99) == 0


def test_an_instance_that_is_behind_still_tells_the_truth_about_a_version(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    behind = Session.objects.get(pk=session.pk)
    recorder.append_many(session, [model_input("three"), model_output("four")], after=2)
    seen = selectors.messages_of(behind, at_version=3).messages
    assert [message.content for message in seen] == ["one", "two", "three"]


# Pages of any branch.


def branching(owner: Any, parents: list[int], head: int) -> dict[int, int]:
    """Grow a tree: each entry after one of those before it, mostly the newest; entry → parent."""
    session = recorder.start_session(owner=owner)
    for back in parents:
        recorder.append(session, model_input("word"), after=max(0, session.version - back))
    recorder.move_head(session, to=head % (session.version + 1))
    entries = Message.objects.filter(session=session, kind="model_input")
    return dict(entries.values_list("seq", "parent_seq"))


def way_to(leaf: int, parents: dict[int, int]) -> list[int]:
    way: list[int] = []
    while leaf in parents:
        way.append(leaf)
        leaf = parents[leaf]
    return way[::-1]


TREES = st.lists(st.integers(0, 9).map(lambda back: max(0, back - 5)), min_size=1, max_size=14)
by_chance = how(
    max_examples=example_count(20),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@by_chance
@given(tree=TREES, head=st.integers(0, 20), limit=st.integers(1, 3))
def test_pages_next_to_any_number_on_the_way_to_any_entry_are_what_that_way_says(
    ada: Any, tree: list[int], head: int, limit: int
) -> None:
    parents = branching(ada, tree, head)
    session = Session.objects.latest("created_at")
    for leaf in (*parents, len(parents) + 5):
        way = way_to(leaf, parents)
        for number in range(len(parents) + 3):
            older = [seq for seq in way if seq < number]
            newer = [seq for seq in way if seq > number]
            before = selectors.messages_of(session, leaf=leaf, before=number, limit=limit)
            after = selectors.messages_of(session, leaf=leaf, after=number, limit=limit)
            assert [row.seq for row in before.messages] == older[-limit:]
            assert (before.has_older, before.has_newer) == (len(older) > limit, older != way)
            assert [row.seq for row in after.messages] == newer[:limit]
            assert (after.has_older, after.has_newer) == (newer != way, len(newer) > limit)


@by_chance
@given(tree=TREES, head=st.integers(0, 20), name=st.sampled_from(["before", "after", "at"]))
def test_a_share_link_shows_no_entry_of_another_branch(ada: Any, tree: list[int], head: int, name: str) -> None:
    parents = branching(ada, tree, head)
    session = Session.objects.latest("created_at")
    for leaf in parents:
        for number in range(len(parents) + 2):
            asked: dict[str, Any] = {name: number, "leaf": len(parents)}
            rows = read_shared(session, TranscriptPosition(**asked), leaf=leaf, kinds=["model_input"]).rows
            assert {row.message.seq for row in rows if isinstance(row, TranscriptEntry)} <= set(way_to(leaf, parents))


def read_along(session: Session, place: TranscriptPosition, way: str) -> list[list[int]]:
    """The numbers on every page, from a place on and wherever the links in one direction lead."""
    pages: list[list[int]] = []
    while True:
        transcript = read_page(session, place)
        pages.append([row.message.seq for row in transcript.rows if isinstance(row, TranscriptEntry)])
        link = getattr(transcript, way)
        if not link:
            return pages
        asked = {name: int(value) for name, value in parse_qsl(link[1:])}
        place = TranscriptPosition(before=asked.get("before"), after=asked.get("after"), leaf=asked.get("leaf"))


def long_branches(owner: Any) -> tuple[Session, list[int], list[int]]:
    """A short path, and beside it two long branches that part half-way; the entries on the older and the newer."""
    session = create_chat(owner, "one", "two", "three")
    trunk = [one.seq for one in recorder.append_many(session, [model_input("word")] * 150, after=2)]
    older = [one.seq for one in recorder.append_many(session, [model_input("older")] * 150, after=trunk[-1])]
    newer = [one.seq for one in recorder.append_many(session, [model_input("newer")] * 150, after=trunk[-1])]
    return session, [1, 2, *trunk, *older], [1, 2, *trunk, *newer]


def test_a_long_branch_is_read_from_its_leaf_to_the_start_and_back_again(ada: Any) -> None:
    session, way, _ = long_branches(ada)
    up = read_along(session, TranscriptPosition(leaf=way[-1]), "older")
    assert [seq for page in reversed(up) for seq in page] == way
    down = read_along(session, TranscriptPosition(leaf=way[-1], after=0), "newer")
    assert [seq for page in down for seq in page] == way


def test_from_a_permalink_the_newest_branch_through_it_is_read_to_its_end(ada: Any) -> None:
    session, _, way = long_branches(ada)
    at = way[40]
    around = read_along(session, TranscriptPosition(at=at), "older")
    assert at in around[0]
    assert [seq for page in reversed(around) for seq in page] == way[: way.index(around[0][-1]) + 1]
    pages = read_along(session, TranscriptPosition(at=at), "newer")
    assert [seq for page in pages for seq in page] == way[way.index(pages[0][0]) :]


def test_from_a_permalink_on_a_branch_that_is_named_the_way_leads_to_its_own_leaf(ada: Any) -> None:
    session, way, _ = long_branches(ada)
    pages = read_along(session, TranscriptPosition(at=way[40], leaf=way[-1]), "newer")
    assert [seq for page in pages for seq in page] == way[way.index(pages[0][0]) :]
