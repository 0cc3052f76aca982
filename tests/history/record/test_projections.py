"""What the columns of a row say about its entry."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import Model

from history.entries import ModelOutput, Summary, ToolRequest
from history.models import Message, Session, ToolCall
from history.record import projections, recorder

LONG = "ŵ\0" * 5_000


def longest(model: type[Model], name: str) -> Any:
    return getattr(model._meta.get_field(name), "max_length", None)


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        (
            ModelOutput(agent=LONG, provider=LONG, model=LONG, end_reason=LONG, request_id=LONG),
            ["agent", "provider", "model", "end_reason", "request_id"],
        ),
        (Summary(first=1, last=2, summary="", provider=LONG, model=LONG), ["provider", "model"]),
    ],
)
def test_a_text_that_is_too_long_is_cut_where_the_column_of_the_message_ends(entry: Any, names: list[str]) -> None:
    columns = projections.columns_of(entry)
    assert {name: len(columns[name]) for name in names} == {name: longest(Message, name) for name in names}
    assert not any("\0" in columns[name] for name in names)


def test_a_call_is_cut_where_its_columns_end_and_is_known_by_what_is_left_of_its_id() -> None:
    (call,) = projections.build_calls(Message(), ModelOutput(parts=(ToolRequest(call_id=LONG, name=LONG),)))
    for name in ("call_id", "name"):
        assert len(getattr(call, name)) == longest(ToolCall, name)
    assert projections.same_id(LONG, call.call_id)
    assert not projections.same_id(LONG, call.call_id[:-1])


@pytest.mark.django_db
def test_a_title_is_cut_where_its_column_ends(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    recorder.rename(session, title="long " * 500)
    assert len(Session.objects.get().title) == longest(Session, "title")
