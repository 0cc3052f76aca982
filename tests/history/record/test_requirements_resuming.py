"""S4.37: the surroundings, the history and a resume keep out of each other's way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from history import retention
from history.context.rendering import render_context
from history.context.values import ContextOptions, entry_view
from history.models import Message, Session
from history.record import recorder
from history.record.selectors import snapshot
from tests.clients import run_history
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db


def rendered_entries(session: Session, environment: str | None) -> list[dict[str, Any]]:
    options = ContextOptions(max_turns=None, environment=environment)
    return [entry_view(entry) for entry in render_context(snapshot(session), options).entries]


def conversation(owner: Any) -> Session:
    session = create_chat(owner, "Why is it slow?")
    recorder.append_many(
        session,
        [model_output("", tool_request("a")), tool_results(tool_result("a")), model_output("The disk.")],
        after=1,
    )
    return session


def resumed(session: Session, folder: Path) -> Session:
    """Exported, gone, and imported again: what is left of it is the file alone."""
    path = folder / "session.jsonl"
    run_history("export", session.pk, "-o", path)
    retention.erase(session, actor=None, reason="to be resumed")
    run_history("import", path, "--owner", session.owner.get_username())
    return Session.objects.get(pk=session.pk)


def test_surroundings_are_put_before_the_history_and_never_into_it(ada: Any, tmp_path: Path) -> None:
    session = conversation(ada)
    alone = rendered_entries(session, None)
    assert rendered_entries(session, "It is Monday.")[1:] == alone
    again = resumed(session, tmp_path)
    assert rendered_entries(again, "It is Friday.")[1:] == alone
    assert rendered_entries(again, "It is Friday.")[0]["parts"][0]["text"] == "It is Friday."
    assert not Message.objects.filter(body__contains="It is").exists()


def test_a_new_session_starts_the_same_after_any_resumed_one(ada: Any, tmp_path: Path) -> None:
    before = rendered_entries(create_chat(ada, "Hello"), "It is Monday.")
    again = resumed(conversation(ada), tmp_path)
    recorder.append(again, model_input("And now?"), after=again.head)
    assert rendered_entries(create_chat(ada, "Hello"), "It is Monday.") == before


def test_a_resumed_session_goes_on_where_it_was_and_nothing_else_moves(ada: Any, tmp_path: Path) -> None:
    other = conversation(ada)
    untouched = rendered_entries(other, None)
    again = resumed(conversation(ada), tmp_path)
    recorder.append(again, model_input("And now?"), after=again.head)
    assert [entry["origin"] for entry in rendered_entries(again, None)] == [[1], [2], [3], [4], [5]]
    assert rendered_entries(other, None) == untouched
