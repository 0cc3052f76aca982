"""What the one writer promises: nothing stored is ever changed, nothing else writes, no vendor's form gets in."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live_settings
from django.db import IntegrityError, connection, transaction

from history import search
from history.access import keys
from history.context.messages import to_context
from history.entries import DebugLog, HeadMoved
from history.models import Message, SearchRow, Session, ToolCall
from history.record import recorder, selectors
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db

ROOT = Path(live_settings.BASE_DIR)
HOOKS = ["tests.history.record.test_requirements_writing.hide_nemo"]


def hide_nemo(text: str) -> str:
    """A redaction hook as an operator would write one."""
    return text.replace("Nemo", "[captain]")


# Append-only.

STORED = ("pk", "seq", "parent_seq", "kind", "role", "content", "body", "digest", "seal", "created_at")


def stored(session: Session) -> list[tuple[Any, ...]]:
    return list(Message.objects.filter(session=session).order_by("seq").values_list(*STORED))


def test_no_call_of_the_writer_changes_stored_entries(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    verbs: list[Callable[[], object]] = [
        lambda: recorder.append(session, model_input("five"), after=session.head),
        lambda: recorder.append(session, model_input("beside"), after=2),
        lambda: recorder.append(session, DebugLog(message="slow"), after=1),
        lambda: recorder.append_many(
            session, [model_output("", tool_request("c")), tool_results(tool_result("c"))], after=3
        ),
        lambda: recorder.append_behind(session, [model_input("behind")], after=3),
        lambda: recorder.append_batch([recorder.Append(session.pk, model_input("batched"), None)]),
        lambda: recorder.move_head(session, to=4),
        lambda: recorder.edit(session, seq=3, entry=model_input("drei")),
        lambda: recorder.regenerate(session, seq=2),
        lambda: recorder.fork(session, at=2, owner=ada),
        lambda: recorder.rename(session, title="another"),
        lambda: recorder.pin(session, pinned=True),
        lambda: recorder.archive(session, archived=True),
        lambda: recorder.assign(session, agent="another"),
        lambda: recorder.renew_blobs([recorder.store_blob(b"bytes", media_type="text/plain")]),
    ]
    for verb in verbs:
        before = stored(session)
        verb()
        assert stored(session)[: len(before)] == before
    assert len(stored(session)) == session.version == 15


def test_the_writer_has_no_verb_that_changes_or_removes_an_entry() -> None:
    verbs = {
        name
        for name, thing in vars(recorder).items()
        if callable(thing) and getattr(thing, "__module__", "") == recorder.__name__ and not name.startswith("_")
    }
    # Each of these is held to leaving the past alone by the test above; a new one has to be added there first.
    assert verbs - {"Append", "Appended", "refuse_when_off"} == {
        "start_session", "append", "append_many", "append_behind", "append_batch", "move_head", "edit", "regenerate",
        "fork", "rename", "store_blob", "renew_blobs", "pin", "archive", "assign",
    }  # fmt: skip


# One write path.


def writes_messages(path: Path) -> bool:
    """Whether a module makes rows of `Message`, or puts them into the table."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    return any(_makes_one(node) or _stores_some(ast.unparse(node)) for node in calls)


def _makes_one(node: ast.Call) -> bool:
    # `Message(pk=…)` only names a row that is there already.
    if ast.unparse(node.func) == "Message":
        return [keyword.arg for keyword in node.keywords] != ["pk"]
    return re.match(r"(bulk\.)?new\(Message\b", ast.unparse(node)) is not None


def _stores_some(call: str) -> bool:
    return re.match(r"(bulk\.)?insert\(Message\b|Message\.(_default_manager|objects)\.\w*create\(", call) is not None


@pytest.mark.any_database
def test_entries_are_made_in_one_place_and_stored_in_one_place() -> None:
    modules = [path for app in ("history", "project", "relay") for path in (ROOT / app).rglob("*.py")]
    writers = {path.relative_to(ROOT).as_posix() for path in modules if writes_messages(path)}
    # What comes back from an export was made before: it is laid down as it was, in a draft of the same writer.
    laid_again = {"history/formats/jsonl/reading.py"}
    assert writers == {"history/record/row_builder.py", "history/record/writer.py"} | laid_again


# No vendor's form.


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "hi"},
        {"role": "user", "parts": [{"text": "hi"}]},
        to_context(model_input("hi"), seq=1),
        to_context(model_input("hi"), seq=1).with_live_screen("12:00"),
    ],
)
def test_what_is_made_for_a_vendor_cannot_be_stored(ada: Any, message: Any) -> None:
    session = recorder.start_session(owner=ada)
    with pytest.raises((AttributeError, TypeError)):
        recorder.append(session, message, after=0)
    assert (Message.objects.count(), Session.objects.get(pk=session.pk).version) == (0, 0)


def test_what_is_stored_is_our_own_typed_form_and_no_vendors(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append_many(
        session,
        [
            model_output("so", tool_request("c1"), tool_request("c2")),
            tool_results(tool_result("c1"), tool_result("c2")),
        ],
        after=1,
    )
    asked, told = (json.loads(row.body or "") for row in Message.objects.filter(session=session, seq__gt=1))
    assert (asked["kind"], told["kind"]) == ("model_output", "tool_results")
    assert [part["type"] for part in asked["parts"]] == ["text", "tool_request", "tool_request"]
    assert [one["call_id"] for one in told["results"]] == ["c1", "c2"]
    vendors = {"role", "content", "tool_calls", "tool_use", "function", "functionCall", "tool_call_id"}
    assert not vendors & {*asked, *told, *asked["parts"][1], *told["results"][0]}


# Before anything is stored.


def test_a_hook_has_done_its_work_before_anything_is_stored(ada: Any, settings: Any) -> None:
    settings.PARLEY_REDACTION_HOOKS = HOOKS
    session = create_chat(ada, "Ask Nemo where the ship is")
    recorder.append(session, model_output("", tool_request("c1", arguments='{"who": "Nemo"}')), after=1)
    recorder.append(session, tool_results(tool_result("c1", "Nemo is below")), after=2)
    session.refresh_from_db()
    assert session.title == "Ask [captain] where the ship is"
    written = [
        *Message.objects.values_list("content", "body"),
        *ToolCall.objects.values_list("arguments", "result"),
        *SearchRow.objects.values_list("tokens"),
    ]
    assert "nemo" not in str(written).lower()
    assert not search.search(ada, "Nemo").hits
    assert len(search.search(ada, "captain").hits) == 3


def test_a_key_can_have_requests_kept_without_the_replies(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, recording="no_replies").api_key
    session = create_chat(ada, "question", "the secret answer", api_key=key, source="relay")
    assert [message.content for message in selectors.messages_of(session).messages] == ["question", ""]
    assert not search.search(ada, "secret answer").hits
    assert "secret" not in str(list(Message.objects.values_list("body", "metadata")))


# What the database itself refuses.


def test_the_database_refuses_a_second_row_for_one_call(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append_many(session, [model_output("", tool_request("c1")), tool_results(tool_result("c1"))], after=1)
    row = ToolCall.objects.get(session=session)
    row.pk, row._state.adding, row.answer_index = None, True, 1
    with pytest.raises(IntegrityError), transaction.atomic():
        row.save(force_insert=True)


# Rolling back after something went wrong.


def test_after_an_error_the_history_is_what_it_was_with_its_types(ada: Any) -> None:
    session = create_chat(ada, "look")
    recorder.append_many(session, [model_output("so", tool_request("c1")), tool_results(tool_result("c1"))], after=1)
    before = selectors.entries_of(selectors.messages_of(session).messages)
    with transaction.atomic():
        recorder.append(session, model_output("never"), after=3)
        transaction.set_rollback(True)  # as an error does
    session.refresh_from_db()
    assert selectors.entries_of(selectors.messages_of(session).messages) == before
    recorder.append(session, model_output("wrong"), after=3)
    recorder.move_head(session, to=3)
    assert selectors.entries_of(selectors.messages_of(session).messages) == before
    assert [type(entry).__name__ for entry in before] == ["ModelInput", "ModelOutput", "ToolResults"]
    assert isinstance(selectors.entries_of(selectors.ledger_of(session))[-1], HeadMoved)


# Durable.


def test_the_database_is_set_to_keep_what_it_has_acknowledged() -> None:
    asked = {"sqlite": ["PRAGMA journal_mode", "PRAGMA synchronous"], "postgresql": ["SHOW synchronous_commit"]}
    answers = []
    with connection.cursor() as cursor:
        for question in asked[connection.vendor]:
            cursor.execute(question)
            answers.append(cursor.fetchone()[0])
    assert answers in (["wal", 1], ["on"])  # WAL and NORMAL; PostgreSQL's default
