"""Imports store files once and completely, also beside broken ones."""

from __future__ import annotations

import gzip
import io
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest
import zstandard
from django.db import connection, connections

from history import importing, retention
from history.context.rendering import render_context
from history.context.repair import find_unpaired
from history.context.values import ContextOptions
from history.dialects import DIALECTS, CallOptions
from history.entries import ModelOutput, Summary, ToolResults
from history.errors import HistoryOff
from history.formats import jsonl, sources
from history.formats.jsonl import restoring
from history.importing import ImportItem, ImportOutcome, ImportReport, running, storing, unpacking
from history.models import AuditEvent, Message, Session
from history.record import recorder
from history.record.selectors import entries_of, snapshot
from history.verification import verify
from project.accounts.models import User
from tests.factories import create_chat, model_input, without_guards
from tests.history.formats.exported import everything, wipe
from tests.history.importing.files import (
    PNG,
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
    zipped,
)
from tests.vendors.rules import problem_with

pytestmark = pytest.mark.django_db

TALK = [
    claude_code("user", "u1", None, "The build is red.", timestamp="2024-03-01T10:00:00Z"),
    claude_code("assistant", "a1", "u1", [tool_use("t1", command="make")], timestamp="2024-03-01T10:00:01Z"),
    claude_code("user", "r1", "a1", [tool_result("t1", "error: typo")], timestamp="2024-03-01T10:00:02Z"),
    claude_code("assistant", "a2", "r1", [text("A typo.")], timestamp="2024-03-01T10:00:03Z"),
]


@pytest.fixture
def bring(ada: User, tmp_path: Path) -> Any:
    """Import files for Ada; gives the report and its items."""

    def brought(name: str, content: bytes, **fields: Any) -> tuple[ImportReport, list[ImportItem]]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        items: list[ImportItem] = []
        report = importing.Import(ada, **fields).run(importing.files_at([path]), items.append)
        return report, items

    return brought


def only_session() -> Session:
    return Session.objects.get()


def path_texts(session: Session) -> list[str]:
    return [message.content for message in Message.objects.filter(session=session, on_path=True).order_by("seq")]


def test_a_conversation_keeps_its_times_its_product_and_its_owner(bring: Any, ada: User) -> None:
    report, items = bring("talk.jsonl", lines(*TALK))
    session = only_session()
    assert (report[ImportOutcome.IMPORTED], report.entries) == (1, 4)
    assert items[0].session == session.pk
    assert (session.owner, session.source, session.client) == (ada, "import", "Claude Code")
    assert session.title == "The build is red."
    assert session.created_at.isoformat() == "2024-03-01T10:00:00+00:00"
    assert session.last_activity_at.isoformat() == "2024-03-01T10:00:03+00:00"
    assert session.stored_at.year >= 2026, "it is kept from the day of import"
    assert [message.created_at.second for message in session.messages.order_by("seq")] == [0, 1, 2, 3]
    assert session.tool_calls.get().status == "success"
    assert AuditEvent.objects.get(action="sessions.imported").actor == ada.pk
    assert list(verify(sessions=[session])) == []


def test_importing_again_changes_nothing(bring: Any) -> None:
    bring("talk.jsonl", lines(*TALK))
    report, items = bring("copy.jsonl", lines(*TALK))
    assert [item.outcome for item in items] == [ImportOutcome.THERE]
    assert report.entries == 0
    assert (only_session().version, only_session().head) == (4, 4)


def test_a_conversation_that_has_grown_gets_its_new_entries(bring: Any) -> None:
    bring("talk.jsonl", lines(*TALK[:2]))
    _, items = bring("talk.jsonl", lines(*TALK))
    session = only_session()
    assert [(item.outcome, item.entries) for item in items] == [(ImportOutcome.GROWN, 2)]
    assert session.version == 4
    assert path_texts(session)[-1] == "A typo."


def test_an_answer_that_was_not_finished_becomes_another_version(bring: Any) -> None:
    half = claude_code("assistant", "a2", "r1", [text("A ty")], timestamp="2024-03-01T10:00:03Z")
    bring("talk.jsonl", lines(*TALK[:3], half))
    _, items = bring("talk.jsonl", lines(*TALK, claude_code("user", "u2", "a2", "Fix it.")))
    session = only_session()
    assert items[0].outcome == ImportOutcome.GROWN
    assert path_texts(session) == ["The build is red.", "", "error: typo", "A typo.", "Fix it."]
    assert Message.objects.filter(session=session, content="A ty", on_path=False).exists()
    _, again = bring("talk.jsonl", lines(*TALK, claude_code("user", "u2", "a2", "Fix it.")))
    assert [item.outcome for item in again] == [ImportOutcome.THERE]


def test_who_went_on_here_keeps_their_place_when_the_source_grows(bring: Any) -> None:
    bring("talk.jsonl", lines(*TALK[:1]))
    session = only_session()
    recorder.append(session, model_input("I ask here instead."), after=session.head)
    bring("talk.jsonl", lines(*TALK))
    assert path_texts(only_session()) == ["The build is red.", "I ask here instead."]
    assert only_session().version == 5


def test_a_deleted_conversation_can_be_imported_anew(bring: Any, ada: User) -> None:
    bring("talk.jsonl", lines(*TALK))
    first = only_session()
    retention.hide(first, actor=ada)
    _, items = bring("talk.jsonl", lines(*TALK))
    assert items[0].outcome == ImportOutcome.IMPORTED
    assert items[0].session != first.pk
    assert bring("talk.jsonl", lines(*TALK))[1][0].outcome == ImportOutcome.THERE
    assert Session.objects.count() == 2


def test_the_same_file_of_two_people_is_two_sessions(bring: Any, bob: User, tmp_path: Path) -> None:
    bring("talk.jsonl", lines(*TALK))
    importing.Import(bob).run(importing.files_at([tmp_path / "talk.jsonl"]))
    assert {session.owner.username for session in Session.objects.all()} == {"ada", "bob"}


def test_what_was_trimmed_by_policy_is_not_brought_back(bring: Any) -> None:
    turns = [claude_code("user", f"u{n}", f"a{n - 1}" if n else None, f"Q{n}") for n in range(6)]
    answers = [claude_code("assistant", f"a{n}", f"u{n}", [text(f"A{n}")]) for n in range(6)]
    talk = [record for pair in zip(turns, answers, strict=True) for record in pair]
    bring("talk.jsonl", lines(*talk[:-2]))
    session = only_session()
    without_guards(Message.objects.filter(session=session, seq__lte=4)).delete()
    Session.objects.filter(pk=session.pk).update(trimmed_through=4)
    _, items = bring("talk.jsonl", lines(*talk))
    assert [(item.outcome, item.entries) for item in items] == [(ImportOutcome.GROWN, 2)]
    assert not Message.objects.filter(session=session, content="Q0").exists()


def test_branches_are_kept_and_the_head_is_where_the_person_was(bring: Any) -> None:
    tree = chatgpt(
        chatgpt_node("u", None, "user", ["Say hello."], children=["a", "b"]),
        chatgpt_node("a", "u", "assistant", ["Hello."], children=["u2"]),
        chatgpt_node("u2", "a", "user", ["Again."]),
        chatgpt_node("b", "u", "assistant", ["Bonjour."]),
        current_node="b",
    )
    bring("conversations.json", document([tree]))
    session = only_session()
    assert path_texts(session) == ["Say hello.", "Bonjour."]
    assert sorted(Message.objects.filter(session=session, on_path=False).values_list("content", flat=True)) == [
        "",
        "Again.",
        "Hello.",
    ]
    assert session.last_activity_at.year == 2024, "moving the head is no activity"
    assert list(verify(sessions=[session])) == []


def test_a_zip_is_read_without_being_unpacked_and_pictures_are_found_in_it(bring: Any, tmp_path: Path) -> None:
    pointer = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-AbC", "size_bytes": 48}
    content = {"content_type": "multimodal_text", "parts": [pointer, "What is it?"]}
    packed = zipped(
        {
            "../../evil.json": b"{}",
            "chat.html": b"<html>",
            "user.json": b'{"id": "user-1"}',
            "file-AbC-cat.png": PNG,
            "conversations.json": document([chatgpt(chatgpt_node("u", None, "user", content=content))]),
        }
    )
    before = sorted(tmp_path.parent.rglob("*"))
    report, _ = bring("export.zip", packed)
    assert (report[ImportOutcome.IMPORTED], report[ImportOutcome.IGNORED], report[ImportOutcome.REFUSED]) == (1, 4, 0)
    assert [path.name for path in sorted(tmp_path.parent.rglob("*")) if path not in before] == ["export.zip"]
    message = only_session().messages.get()
    assert [blob.media_type for blob in message.blobs.all()] == ["image/png"]


def test_archives_in_archives_and_single_packed_files_are_read(bring: Any) -> None:
    inner = zipped({"talk.jsonl": lines(*TALK)})
    assert bring("outer.zip", zipped({"inner.zip": inner}))[0][ImportOutcome.IMPORTED] == 1
    assert bring("talk.jsonl.gz", gzip.compress(lines(*TALK)))[0][ImportOutcome.THERE] == 1
    assert bring("talk.jsonl.zst", zstandard.compress(lines(*TALK)))[0][ImportOutcome.THERE] == 1
    deep = zipped({"c.zip": zipped({"b.zip": inner})})
    assert "nested more than twice" in bring("deep.zip", deep)[1][0].why


@pytest.mark.parametrize("pack", [gzip.compress, lambda content: zipped({"a.jsonl": content})], ids=["gzip", "zip"])
def test_many_small_bombs_are_a_large_one(bring: Any, monkeypatch: pytest.MonkeyPatch, pack: Any) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED", 5_000_000)
    bomb = pack(b'{"a": 1}\n' * 222_222)
    _, items = bring("bombs.zip", zipped({f"{number}.jsonl": bomb for number in range(6)}))
    assert any("unpack to far more" in item.why for item in items)
    assert sum("unpack to far more" not in item.why for item in items) <= 2


def test_bombs_and_locked_and_damaged_archives_are_refused_in_words(
    bring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "FREE_OF_RATIO", 1_000_000)
    bomb = b'{"messages": [' + b" " * 20_000_000
    assert "unpack to far more" in bring("bomb.zip", zipped({"a.json": bomb}))[1][0].why
    assert "unpack to far more" in bring("bomb.json.gz", gzip.compress(bomb))[1][0].why
    assert "unpack to far more" in bring("bomb.json.zst", zstandard.compress(bomb))[1][0].why
    whole = zipped({"talk.jsonl": lines(*TALK)})
    assert "damaged" in bring("cut.zip", whole[: len(whole) // 2])[1][0].why
    assert "damaged" in bring("cut.jsonl.gz", gzip.compress(lines(*TALK))[:-30])[1][0].why
    locked = io.BytesIO(whole)
    with zipfile.ZipFile(locked) as archive:
        offset = archive.infolist()[0].header_offset
    marked = bytearray(whole)
    marked[offset + 6] |= 1
    marked[whole.rindex(b"PK\x01\x02") + 8] |= 1
    assert "password" in bring("locked.zip", bytes(marked))[1][0].why
    assert not Session.objects.exists()


def test_one_bad_conversation_keeps_nothing_else_out_and_is_named(bring: Any) -> None:
    good = [
        chatgpt(chatgpt_node("u", None, "user", [f"Hi {n}."]), id=f"c{n}", conversation_id=f"c{n}") for n in range(3)
    ]
    bad = chatgpt(chatgpt_node("u", None, "user", ["Hi."]), title="No id", id=None, conversation_id=None)
    report, items = bring("conversations.json", document([good[0], bad, good[1], 7, good[2]]))
    assert report[ImportOutcome.IMPORTED] == 3
    assert [(item.title, item.why) for item in items if item.outcome == ImportOutcome.REFUSED] == [
        ("No id", "this conversation has no id"),
        ("item 4", "this is not an object"),
    ]
    again, _ = bring("conversations.json", document([good[0], bad, good[1], 7, good[2]]))
    assert (again[ImportOutcome.THERE], again[ImportOutcome.REFUSED], Session.objects.count()) == (3, 2, 3)


def test_a_folder_is_walked_and_what_is_nothing_is_passed_over(ada: User, tmp_path: Path) -> None:
    (tmp_path / "projects" / "-work").mkdir(parents=True)
    (tmp_path / "projects" / "-work" / "s.jsonl").write_bytes(lines(*TALK))
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "page.css").write_text("{ margin: 0 }")
    (tmp_path / "picture.png").write_bytes(PNG)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "projects" / "-work" / "s.jsonl")
    items: list[ImportItem] = []
    read = 0

    def count(size: int) -> None:
        nonlocal read
        read += size

    importing.Import(ada, on_bytes=count).run(importing.files_at([tmp_path]), items.append)
    assert sorted((item.outcome.value, item.file) for item in items) == [
        ("ignored", "notes.txt"),
        ("ignored", "page.css"),
        ("ignored", "picture.png"),
        ("imported", "projects/-work/s.jsonl"),
    ]
    assert read == sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink())


def test_a_named_file_without_a_format_is_refused(bring: Any) -> None:
    _, items = bring("notes.txt", b"hello")
    assert [(item.outcome, item.why) for item in items] == [
        (ImportOutcome.REFUSED, "The format is not supported. The import guide lists the supported ones.")
    ]


def test_subagents_find_their_parents_in_any_order(bring: Any) -> None:
    child = [
        claude_code("user", "k1", None, "dig", isSidechain=True, agentId="b8c9"),
        claude_code("assistant", "k2", "k1", [text("Gold.")], isSidechain=True, agentId="b8c9"),
    ]
    bring("all.zip", zipped({"a/agent-b8c9.jsonl": lines(*child), "b/main.jsonl": lines(*TALK)}))
    parent = Session.objects.get(title="The build is red.")
    assert [session.title for session in parent.children.all()] == ["dig"]


def test_a_dry_run_says_what_would_be_done_and_does_nothing(bring: Any) -> None:
    _, items = bring("talk.jsonl", lines(*TALK), dry_run=True)
    assert [(item.outcome, item.entries) for item in items] == [(ImportOutcome.IMPORTED, 4)]
    assert not Session.objects.exists()
    assert not AuditEvent.objects.exists()
    bring("talk.jsonl", lines(*TALK[:2]))
    assert bring("talk.jsonl", lines(*TALK), dry_run=True)[1][0].outcome == ImportOutcome.GROWN
    assert only_session().version == 2


def test_nothing_is_imported_while_history_is_off(bring: Any, settings: Any) -> None:
    settings.CHAT_HISTORY_ENABLED = False
    with pytest.raises(HistoryOff):
        bring("talk.jsonl", lines(*TALK))


def test_a_long_conversation_is_written_in_pieces_and_keeps_its_order(bring: Any) -> None:
    talk = []
    for n in range(450):
        talk.append(claude_code("user", f"u{n}", f"a{n - 1}" if n else None, f"Question {n}"))
        talk.append(claude_code("assistant", f"a{n}", f"u{n}", [text(f"Answer {n}")]))
    assert bring("long.jsonl", lines(*talk))[0].entries == 900
    session = only_session()
    assert (session.version, session.head, session.message_count) == (900, 900, 900)
    assert bring("long.jsonl", lines(*talk))[0][ImportOutcome.THERE] == 1


def test_an_import_that_dies_in_the_middle_is_continued_by_the_next(
    bring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = []
    for n in range(250):
        talk.append(claude_code("user", f"u{n}", f"a{n - 1}" if n else None, f"Question {n}"))
        talk.append(claude_code("assistant", f"a{n}", f"u{n}", [text(f"Answer {n}")]))
    append, calls = storing._append, 0

    def dies(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        append(*arguments)

    monkeypatch.setattr(storing, "_append", dies)
    with pytest.raises(KeyboardInterrupt):
        bring("long.jsonl", lines(*talk))
    assert only_session().version == 400
    report, _ = bring("long.jsonl", lines(*talk))
    assert (report[ImportOutcome.GROWN], report.entries) == (1, 100)
    assert (only_session().version, only_session().head) == (500, 500)
    assert list(verify(sessions=[only_session()])) == []


@pytest.mark.django_db(transaction=True)
def test_two_imports_of_the_same_file_at_once_do_not_double_it(ada: User, tmp_path: Path) -> None:
    talk = [claude_code("user", f"u{n}", f"u{n - 1}" if n else None, f"Line {n}") for n in range(450)]
    (tmp_path / "long.jsonl").write_bytes(lines(*talk))
    (tmp_path / "short.jsonl").write_bytes(lines(*TALK).replace(b"5e551017", b"5e551018"))
    refused: list[ImportItem] = []

    def bring_all() -> None:
        try:
            importing.Import(ada).run(
                importing.files_at([tmp_path]),
                lambda item: refused.append(item) if item.outcome == ImportOutcome.REFUSED else None,
            )
        finally:
            connections.close_all()

    threads = [threading.Thread(target=bring_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert sorted(Session.objects.values_list("version", flat=True)) == [4, 450]
    assert list(verify()) == []


def test_a_summary_stands_for_the_same_entries_in_the_record(bring: Any) -> None:
    records = [
        codex_meta(base_instructions={"text": "You are Codex."}),
        codex_said("user", "One."),
        codex_said("assistant", "Two."),
        rollout("compacted", message="They counted.", replacement_history=[]),
        codex_said("user", "Three."),
    ]
    bring("rollout.jsonl", lines(*records[:3]))
    bring("rollout.jsonl", lines(*records))
    session = only_session()
    summary = next(entry for entry in entries_of(list(session.messages.order_by("seq"))) if isinstance(entry, Summary))
    assert (summary.first, summary.last) == (1, 3)
    told = render_context(snapshot(session), ContextOptions(max_turns=None))
    contents = "\n".join(entry.content for entry in told.entries)
    assert "They counted." in contents
    assert "Two." not in contents


MESSY = [
    claude_code("assistant", "a0", "lost", [text("…and so on."), tool_use("t0", command="ls")]),
    claude_code("user", "u1", "a0", "Never mind."),
    claude_code("assistant", "a1", "u1", [tool_use("t1", command="x"), tool_use("t2", command="y")]),
    claude_code("user", "r1", "a1", [tool_result("t2", "late")]),
    claude_code("user", "r9", "gone", [tool_result("t9", "not asked for")]),
    claude_code("assistant", "a2", "r9", [{"type": "thinking", "thinking": "?", "signature": "c2ln"}, text("Hm.")]),
    claude_code("user", "u2", "a2", ""),
    claude_code("user", "u3", "u2", "Go on."),
]


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_what_was_imported_is_a_context_that_every_vendor_takes(bring: Any, dialect: str) -> None:
    bring("messy.jsonl", lines(*MESSY))
    session = only_session()
    context = render_context(snapshot(session), ContextOptions(max_turns=None))
    assert find_unpaired(context.entries) == ()
    body = DIALECTS[dialect].encode(context, CallOptions(model="model-1", max_tokens=100)).body
    headers = {"anthropic-version": "2023-06-01"}
    signatures = {"c2ln"}
    assert problem_with(dialect, body, headers, signatures) is None


def test_pairs_that_do_not_fit_are_stored_as_they_came_and_marked(bring: Any) -> None:
    bring("messy.jsonl", lines(*MESSY))
    entries = entries_of(list(only_session().messages.order_by("seq")))
    results = [entry for entry in entries if isinstance(entry, ToolResults)]
    assert [result.call_id for entry in results for result in entry.results] == ["t2", "t9"]
    assert all("unpaired" in entry.metadata for entry in results)
    assert isinstance(entries[1], ModelOutput)


def test_our_own_export_is_restored_under_the_ids_that_it_had(bring: Any, ada: User) -> None:
    bring("talk.jsonl", lines(*TALK))
    session = only_session()
    writer = jsonl.JsonlWriter()
    exported = b"".join([writer.head(), *writer.session(session), writer.end()])
    name = session.pk
    retention.erase(session, actor=ada, reason="for the test")
    _, items = bring("parley.zip", zipped({"parley.jsonl": exported}))
    assert [(item.outcome, item.session, item.format) for item in items] == [(ImportOutcome.IMPORTED, name, "parley")]
    assert bring("talk.jsonl", lines(*TALK))[1][0].outcome == ImportOutcome.THERE, "the source's ids came back with it"


def test_a_long_session_of_our_own_export_stops_between_its_batches(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    create_chat(ada, *"abcdef")
    exported = everything()
    wipe()
    monkeypatch.setattr(restoring, "BATCH", 7)
    steps = list(jsonl.restore([*exported.splitlines(keepends=True)], owner=ada))
    assert [step and step.outcome for step in steps] == [None, None, None, "imported"]


def test_a_line_of_our_own_format_that_never_ends_is_read_past(bring: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_LINE", 1_000)
    read: list[int] = []

    def restore(lines: Any, **_how: Any) -> tuple[()]:
        read.extend(map(len, lines))
        return ()

    monkeypatch.setattr(jsonl, "restore", restore)
    head = b'{"format":"parley","type":"header","version":1}\n'
    bring("x.gz", gzip.compress(head + b"x" * 3_000_000 + b"\n" + head))
    assert read == [len(head), 1, len(head)]


@pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL keeps its statistics by itself")
def test_a_large_import_updates_the_statistics_of_the_tables(ada: User, tmp_path: Path, monkeypatch: Any) -> None:
    def analyzed() -> set[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'")
            cursor.execute("SELECT tbl FROM sqlite_stat1" if cursor.fetchall() else "SELECT NULL WHERE 0")
            return {table for (table,) in cursor.fetchall()}

    monkeypatch.setattr(running, "MANY_ENTRIES", 2)
    before = analyzed()
    (tmp_path / "talk.jsonl").write_bytes(
        lines(
            claude_code("user", "u1", None, "hi"),
            claude_code("assistant", "a1", "u1", [{"type": "text", "text": "Hello."}]),
        )
    )
    importing.Import(ada).run(importing.files_at([tmp_path / "talk.jsonl"]))
    assert {"history_session", "history_message"} <= analyzed() - before
