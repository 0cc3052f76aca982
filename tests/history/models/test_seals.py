"""Seals: nothing that matters can change without the chain showing it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.entries import DebugLog
from history.models import Message, Session, seals
from history.record import recorder
from tests.factories import create_chat, example_count, model_input, model_output

FACTS: dict[str, Any] = {"seq": 3, "parent": 2, "kind": "model_input", "digest": b"d" * 32}


@pytest.mark.parametrize("change", [{"seq": 4}, {"parent": 1}, {"kind": "model_output"}, {"digest": b"e" * 32}])
def test_a_seal_changes_with_everything_it_covers(change: dict[str, Any]) -> None:
    seal = seals.seal_of(b"p" * 32, **FACTS)
    assert seals.seal_of(b"p" * 32, **FACTS | change) != seal
    assert seals.seal_of(b"q" * 32, **FACTS) != seal


@settings(max_examples=example_count(200), derandomize=True)
@given(numbers=st.tuples(*[st.integers(0, 1_200)] * 4), kinds=st.tuples(*[st.text("ab|1", max_size=4)] * 2))
def test_different_facts_never_share_a_seal(numbers: tuple[int, ...], kinds: tuple[str, str]) -> None:
    one, other = (numbers[0], numbers[1], kinds[0]), (numbers[2], numbers[3], kinds[1])
    sealed = [
        seals.seal_of(b"p" * 32, seq=seq, parent=parent, kind=kind, digest=b"d" * 32)
        for seq, parent, kind in (one, other)
    ]
    assert (sealed[0] == sealed[1]) == (one == other)


def test_the_same_text_twice_has_two_digests() -> None:
    assert seals.digest_of(seals.new_salt(), "body") != seals.digest_of(seals.new_salt(), "body")
    assert len(seals.new_salt()) == 16


@settings(max_examples=example_count(200), derandomize=True)
@given(fields=st.tuples(*[st.lists(st.none() | st.text('a\x1f,"', max_size=3), min_size=2, max_size=2)] * 2))
def test_an_audit_seal_knows_where_one_field_ends_and_the_next_begins(fields: tuple[list[Any], list[Any]]) -> None:
    one, other = fields
    assert (seals.audit_seal_of(b"", *one) == seals.audit_seal_of(b"", *other)) == (one == other)


@pytest.mark.django_db
def test_every_entry_is_chained_to_the_one_written_before_on_any_branch(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three")
    recorder.append(session, model_input("beside"), after=1)
    recorder.append(session, DebugLog(message="slow"), after=2)
    recorder.move_head(session, to=2)
    recorder.append(session, model_output("drei"), after=2)
    previous = b""
    for row in Message.objects.filter(session=session).order_by("seq"):
        assert row.body is not None
        assert row.salt is not None
        assert row.digest == seals.digest_of(row.salt, row.body)
        chained = seals.seal_of(previous, seq=row.seq, parent=row.parent_seq, kind=row.kind, digest=row.digest)
        assert row.seal == chained
        previous = row.seal
    assert Session.objects.get(pk=session.pk).last_seal == previous
