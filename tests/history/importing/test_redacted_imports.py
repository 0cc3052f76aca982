"""What a key imports is kept as the key records: without credentials, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from history import importing
from history.access import keys
from history.formats import jsonl
from history.importing import ImportItem, ImportOutcome, jobs
from history.models import ApiKey, ImportJob, Session
from history.record import recorder
from history.verification import verify
from project.accounts.models import User
from tests.factories import create_chat, model_input, model_output
from tests.history.importing.files import (
    chatgpt,
    chatgpt_node,
    claude_code,
    codex_meta,
    codex_said,
    document,
    lines,
    rollout,
    text,
    tool_result,
    tool_use,
)

pytestmark = pytest.mark.django_db

SECRET = "sk-" + "proj-" + "a1B2c3D4e5F6g7H8" * 3
TALK = [
    claude_code("user", "u1", None, f"{SECRET} does not work", timestamp="2024-03-01T10:00:00Z"),
    claude_code("assistant", "a1", "u1", [text(f"I tried {SECRET}.")], timestamp="2024-03-01T10:00:01Z"),
    {"type": "summary", "summary": f"About {SECRET}", "leafUuid": "a1"},
]


@pytest.fixture
def bring(ada: User, tmp_path: Path) -> Any:
    def bring(content: bytes, api_key: ApiKey | None) -> list[ImportItem]:
        file = tmp_path / "talk.jsonl"
        file.write_bytes(content)
        items: list[ImportItem] = []
        importing.Import(ada, api_key=api_key).run(importing.files_at([file]), items.append)
        return items

    return bring


def is_stored(words: str) -> bool:
    """In any column of any table."""
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(table)}")
            if any(words in str(value) for row in cursor.fetchall() for value in row):
                return True
    return False


@pytest.mark.parametrize("how", [{}, {"owner_wide": True}])
def test_credentials_in_imported_conversations_are_redacted(bring: Any, ada: User, how: dict[str, Any]) -> None:
    """Also where the sessions are not recorded under the key, because it sees all of its owner's."""
    key = keys.create(name="laptop", owner=ada, recording="redacted", **how).api_key
    [item] = bring(lines(*TALK), key)
    assert item.outcome is ImportOutcome.IMPORTED
    assert Session.objects.get().message_count == 2
    assert "[redacted:" in Session.objects.get().title
    assert SECRET not in item.title
    assert not is_stored(SECRET)
    assert list(verify()) == []


EVERYWHERE = {
    "claude code": lines(
        claude_code("user", "u1", None, "go", cwd=f"/home/{SECRET}", gitBranch=SECRET, unknown={"deep": [SECRET]}),
        claude_code("assistant", "a1", "u1", [tool_use("c1", command=f"curl -H {SECRET}", **{SECRET: "a key"})]),
        claude_code("user", "u2", "a1", [tool_result("c1", SECRET)], toolUseResult={"stdout": SECRET, SECRET: 1}),
        claude_code("assistant", "a2", "u2", [{"type": "thinking", "thinking": SECRET}, tool_use("c2", name=SECRET)]),
    ),
    "codex": lines(
        codex_meta(note=f"/x/{SECRET}", instructions=SECRET),
        codex_said("user", SECRET),
        rollout("response_item", type="function_call", name="sh", arguments=f'{{"c": "{SECRET}"}}', call_id="c1"),
        rollout("response_item", type="function_call_output", call_id="c1", output=SECRET),
    ),
    "chatgpt": document(
        [
            chatgpt(
                chatgpt_node("n1", None, "user", [SECRET], children=["n2"]),
                chatgpt_node("n2", "n1", "assistant", [f"yes, {SECRET}"], metadata={"note": SECRET}),
                title=SECRET,
            )
        ]
    ),
}


@pytest.mark.parametrize("program", EVERYWHERE)
def test_credentials_in_every_place_of_a_file_are_redacted(bring: Any, ada: User, program: str) -> None:
    """Arguments and their names, results, thoughts, names of tools, folders, branches, titles and unknown fields."""
    key = keys.create(name="laptop", owner=ada, recording="redacted").api_key
    items = bring(EVERYWHERE[program], key)
    assert [item.outcome for item in items] == [ImportOutcome.IMPORTED]
    assert SECRET not in str(items)
    assert not is_stored(SECRET)


def test_the_report_of_an_import_holds_no_credentials(ada: User, settings: Any, tmp_path: Path) -> None:
    """Its notes name the files that were not there, and so may quote what was imported."""
    settings.PARLEY_DATA_DIR = tmp_path
    message = {
        **{"uuid": "m1", "sender": "human", "text": "hello", "content": [{"type": "text", "text": "hello"}]},
        **{"created_at": "2024-03-01T10:00:00Z", "attachments": [], "files": [{"file_name": f"{SECRET}.png"}]},
    }
    talk = {"uuid": "00000000-0000-4000-8000-000000000002", "name": "", "chat_messages": [message]}
    empty = {"uuid": "00000000-0000-4000-8000-000000000003", "name": SECRET, "chat_messages": []}
    content = document([talk | {"created_at": "2024-03-01T10:00:00Z"}, empty | {"created_at": "2024-03-01T10:00:00Z"}])
    key = keys.create(name="laptop", owner=ada, recording="redacted").api_key
    job = jobs.create(ada, [(f"{SECRET}.json", len(content))], api_key=key)
    jobs.add_piece(job, place=0, offset=0, content=content)
    jobs.start(job)
    jobs.work()
    job.refresh_from_db()
    assert (job.state, len(job.items)) == (ImportJob.State.DONE, 2)
    assert ("[redacted:openai-key].png" in str(job.items), not is_stored(SECRET)) == (True, True), job.items


def test_what_people_import_themselves_is_kept_as_it_is(bring: Any) -> None:
    bring(lines(*TALK), None)
    assert is_stored(SECRET)


def of_another_house(session: Session) -> bytes:
    """Its export, and nothing here that it could be."""
    writer = jsonl.JsonlWriter()
    file = b"".join([writer.head(), *writer.session(session), writer.end()])
    return file.replace(str(session.pk).encode(), b"00000000-0000-4000-8000-000000000001")


@pytest.mark.parametrize("mode", ["redacted", "no_replies"])
def test_an_export_with_texts_that_a_key_does_not_keep_is_refused(bring: Any, ada: User, mode: str) -> None:
    """Its entries are sealed: they are taken as they are or not at all."""
    file = of_another_house(create_chat(ada, f"{SECRET} does not work", "I see.", title="Keys"))
    [item] = bring(file, keys.create(name="laptop", owner=ada, recording=mode).api_key)
    assert item.outcome is ImportOutcome.REFUSED
    assert "does not record" in str(item.why)
    assert Session.objects.count() == 1


def test_an_export_without_credentials_is_restored_with_a_clean_title(bring: Any, ada: User) -> None:
    session = create_chat(ada, "hello", "hi", title=f"About {SECRET}")
    [item] = bring(of_another_house(session), keys.create(name="laptop", owner=ada, recording="redacted").api_key)
    assert item.outcome is ImportOutcome.IMPORTED
    restored = Session.objects.exclude(pk=session.pk).get()
    assert restored.title == "About [redacted:openai-key]"
    assert restored.message_count == 2


def test_titles_and_agents_set_by_hand_are_redacted_where_the_key_says_so(ada: User) -> None:
    key = keys.create(name="laptop", owner=ada, recording="redacted").api_key
    session = recorder.start_session(owner=ada, api_key=key, title=f"With {SECRET}", metadata={"note": SECRET})
    recorder.append_many(session, [model_input("hello"), model_output("hi")], after=0)
    recorder.rename(session, title=f"  My   {SECRET} key ")
    assert Session.objects.get().title == "My [redacted:openai-key] key"
    recorder.assign(session, agent=SECRET)
    assert not is_stored(SECRET)
    own = create_chat(ada, "hello")
    recorder.rename(own, title=f"My {SECRET} key")
    assert Session.objects.get(pk=own.pk).title == f"My {SECRET} key"


def test_a_key_that_keeps_no_texts_lets_titles_be_set(ada: User) -> None:
    key = keys.create(name="laptop", owner=ada, recording="metadata").api_key
    session = recorder.start_session(owner=ada, api_key=key)
    recorder.rename(session, title=f"My {SECRET} key")
    assert Session.objects.get().title == "My [redacted:openai-key] key"
