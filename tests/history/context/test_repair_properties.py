"""Properties of repair for any input."""

import pytest
from hypothesis import given, settings, strategies as st

from history.context.repair import find_unpaired, repair
from history.context.values import ContextEntry, Role
from tests.factories import example_count
from tests.history.context.strategies import context_entries

pytestmark = pytest.mark.no_database

MANY = settings(max_examples=example_count(300), deadline=None)


@MANY
@given(context_entries())
def test_repairing_twice_changes_nothing_and_reports_nothing(entries: list[ContextEntry]) -> None:
    once, _ = repair(entries)
    twice, report = repair(once)
    assert twice == once
    assert report.codes == ()


@MANY
@given(context_entries())
def test_every_call_is_answered_directly_after_it_and_nothing_else_is(entries: list[ContextEntry]) -> None:
    assert find_unpaired(repair(entries)[0]) == ()


@MANY
@given(context_entries(), st.data())
def test_any_cut_of_any_history_can_be_repaired(entries: list[ContextEntry], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(entries)))
    end = data.draw(st.integers(start, len(entries)))
    assert find_unpaired(repair(entries[start:end])[0]) == ()


@MANY
@given(context_entries())
def test_a_change_is_never_silent(entries: list[ContextEntry]) -> None:
    repaired, report = repair(entries)
    assert bool(report.remarks) == (repaired != tuple(entries))


@MANY
@given(context_entries())
def test_what_people_and_the_model_said_survives(entries: list[ContextEntry]) -> None:
    repaired, _ = repair(entries)

    def texts_of(some: list[ContextEntry] | tuple[ContextEntry, ...]) -> list[str]:
        roles = (Role.MODEL_INPUT, Role.MODEL_OUTPUT)
        return [entry.content.strip() for entry in some if entry.role in roles and entry.content.strip()]

    assert texts_of(repaired)[-len(texts_of(entries)) :] == texts_of(entries) or not texts_of(entries)
