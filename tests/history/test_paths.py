"""Walking the tree of one session: from any entry to the path, and to the head of any version."""

from __future__ import annotations

from typing import Any

import pytest

from history import paths, recorder, selectors
from history.models import Session
from tests.talk import answered, chat_of, said

pytestmark = pytest.mark.django_db


def forked_talk(owner: Any) -> Session:
    """1 ─ 2 ─ 3 ─ 4   is the path; 2 ─ 5 ─ 6 and 5 ─ 7 lie beside it."""
    session = chat_of(owner, "one", "two", "three", "four")
    recorder.append_many(session, [said("five"), answered("six")], after=2)
    recorder.append(session, answered("seven"), after=5)
    return session


@pytest.mark.parametrize(
    ("leaf", "beside", "joins"), [(4, [], 4), (2, [], 2), (5, [5], 2), (6, [6, 5], 2), (7, [7, 5], 2), (99, [], 0)]
)
def test_climbing_stops_where_the_path_begins(ada: Any, leaf: int, beside: list[int], joins: int) -> None:
    assert paths.climb(forked_talk(ada).pk, leaf) == (beside, joins)


def test_a_branch_from_the_very_start_joins_nowhere(ada: Any) -> None:
    session = chat_of(ada, "one", "two")
    recorder.append_many(session, [said("eins"), answered("zwei")], after=0)
    assert paths.climb(session.pk, 4) == ([4, 3], 0)


def test_climbing_never_leaves_the_session(ada: Any) -> None:
    chat_of(ada, "a", "b", "c")
    session = chat_of(ada, "one")
    recorder.append(session, said("eins"), after=0)
    assert paths.climb(session.pk, 2) == ([2], 0)


def test_the_head_of_every_version_is_what_it_was_then(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    heads = [0]
    recorder.append(session, said("one"), after=0)
    heads.append(session.head)
    recorder.append(session, said("beside"), after=0)
    heads.append(session.head)
    recorder.move_head(session, to=2)
    heads.append(session.head)
    recorder.append(session, answered("two"), after=2)
    heads.append(session.head)
    recorder.move_head(session, to=0)
    heads.append(session.head)
    assert heads == [0, 1, 1, 2, 4, 0]
    assert [paths.head_at(session, version) for version in range(6)] == heads
    assert paths.head_at(session, 99) == 0


def test_an_instance_that_is_behind_still_tells_the_truth_about_a_version(ada: Any) -> None:
    session = chat_of(ada, "one", "two")
    behind = Session.objects.get(pk=session.pk)
    recorder.append_many(session, [said("three"), answered("four")], after=2)
    seen = selectors.messages_of(behind, at_version=3).messages
    assert [message.content for message in seen] == ["one", "two", "three"]
