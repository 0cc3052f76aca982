"""`manage.py history delete`, `purge` and `verify`, and how the command behaves as a program."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from django.utils import timezone

from history import retention
from history.models import AuditEvent, Message, Session
from tests.clients import Lines, run_history, run_history_json
from tests.factories import create_chat
from tests.servers.databases import copy_migrated_file

pytestmark = pytest.mark.runs_first

ROOT = Path(__file__).resolve().parents[3]


# delete


@pytest.mark.django_db
def test_without_yes_nothing_is_deleted_and_it_is_said_what_would_be(ada: Any) -> None:
    session = create_chat(ada, "keep me", "please")
    out, err = run_history("delete", session.pk)
    assert "would be hidden" in out
    assert "2" in out
    assert "Nothing was deleted" in err
    assert Session.objects.get(pk=session.pk).hidden_at is None
    assert not AuditEvent.objects.exists()


@pytest.mark.django_db
def test_deleting_puts_sessions_into_the_trash(ada: Any) -> None:
    first, second = create_chat(ada, "a"), create_chat(ada, "b")
    out, _ = run_history("delete", str(first.pk)[:12], second.pk, first.pk, "--yes", "--reason", "asked to")
    assert out.count("hidden") == 2
    assert Session.objects.filter(hidden_at=None).count() == 0
    assert AuditEvent.objects.filter(action="hide", reason="asked to").count() == 2
    assert "hidden before" in run_history("delete", first.pk, "--yes")[0]


@pytest.mark.django_db
def test_erasing_removes_for_good_and_keeps_the_reason(ada: Any) -> None:
    session = create_chat(ada, "gone")
    assert run_history_json("delete", session.pk, "--erase", "--reason", "request 7", "--yes") == {
        "dry_run": False,
        "sessions": [{"session": str(session.pk), "messages": 1, "outcome": "erased"}],
    }
    assert not Session.objects.filter(pk=session.pk).exists()
    assert AuditEvent.objects.filter(session=session.pk, reason="request 7").exists()


@pytest.mark.django_db
def test_erasing_needs_a_reason(ada: Any) -> None:
    with pytest.raises(CommandError, match="Add --reason") as caught:
        run_history("delete", create_chat(ada, "x").pk, "--erase", "--yes")
    assert caught.value.returncode == 2


@pytest.mark.django_db
def test_a_held_session_is_left_alone_and_the_others_go(ada: Any) -> None:
    held, free = create_chat(ada, "held"), create_chat(ada, "free")
    retention.hold(held, actor=ada, reason="case 1")
    with pytest.raises(CommandError, match="Under hold and unchanged: 1"):
        run_history("delete", held.pk, free.pk, "--erase", "--reason", "tidy", "--yes")
    assert list(Session.objects.values_list("pk", flat=True)) == [held.pk]


@pytest.mark.django_db
def test_a_user_cannot_delete_what_is_not_theirs(ada: Any, bob: Any) -> None:
    session = create_chat(ada, "x")
    with pytest.raises(CommandError, match="There is no session"):
        run_history("delete", session.pk, "--as", "bob", "--yes")
    run_history("delete", session.pk, "--as", "ada", "--yes")
    assert AuditEvent.objects.get(action="hide").actor == ada.pk


@pytest.mark.django_db
def test_staff_delete_with_a_reason_and_only_owners_hide_held_sessions(ada: Any, bob: Any) -> None:
    session = create_chat(ada, "A loom.")
    bob.is_staff = bob.is_superuser = True
    bob.save()
    retention.hold(session, actor=None, reason="a dispute")
    with pytest.raises(CommandError, match="Give a reason with --reason"):
        run_history("delete", session.pk, "--as", "bob", "--yes")
    for who in (("--as", "bob", "--reason", "too old"), ()):
        with pytest.raises(CommandError, match="Under hold and unchanged: 1"):
            run_history("delete", session.pk, *who, "--yes")
    assert Session.objects.get(pk=session.pk).hidden_at is None
    run_history("delete", session.pk, "--as", "ada", "--yes")
    assert Session.objects.get(pk=session.pk).hidden_at


@pytest.mark.django_db
def test_one_wrong_name_among_many_deletes_nothing(ada: Any) -> None:
    session = create_chat(ada, "x")
    with pytest.raises(CommandError, match="There is no session"):
        run_history("delete", session.pk, "00000000-0000-4000-8000-000000000000", "--yes")
    assert Session.objects.get(pk=session.pk).hidden_at is None


# purge


@pytest.fixture
def due(ada: Any, settings: Any) -> Session:
    """A relayed session that has expired, and one that has not."""
    settings.CHAT_HISTORY_TTL_DAYS = 30
    session = create_chat(ada, "old", "one", source="relay")
    long_ago = timezone.now() - timedelta(days=40)
    Session.objects.filter(pk=session.pk).update(last_activity_at=long_ago, expires_at=long_ago + timedelta(days=30))
    create_chat(ada, "new", source="relay")
    return session


@pytest.mark.django_db
def test_a_purge_without_yes_only_counts(due: Session) -> None:
    out, err = run_history("purge")
    assert "sessions that expired                   1" in out
    assert "entries of these sessions               2" in out
    assert "Nothing was removed" in err
    assert Session.objects.count() == 2


@pytest.mark.django_db
def test_a_purge_with_yes_removes_what_is_due(due: Session) -> None:
    report = run_history_json("purge", "--yes", "--budget", 60)
    assert (report["expired"], report["messages"], report["dry_run"], report["is_complete"]) == (1, 2, False, True)
    assert not Session.objects.filter(pk=due.pk).exists()
    assert Session.objects.count() == 1


@pytest.mark.django_db
def test_a_purge_whose_time_is_up_says_that_the_next_goes_on(due: Session) -> None:
    _, err = run_history("purge", "--yes", "--budget", "0.000001")
    assert "The next run continues" in err


@pytest.mark.parametrize("budget", ["0", "-1", "soon", "nan", "1e400"])
def test_a_budget_is_a_time(budget: str) -> None:
    with pytest.raises(CommandError, match="write a number of seconds"):
        run_history("purge", f"--budget={budget}")


# verify


def tamper(sql: str, *parameters: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)


@pytest.mark.django_db
def test_a_healthy_record_gives_a_checkpoint(ada: Any) -> None:
    create_chat(ada, "one", "two")
    out, _ = run_history("verify")
    assert out.startswith("Healthy.\n")
    assert "entries  2" in out
    assert "root  " in out


@pytest.mark.django_db
def test_an_altered_entry_is_named_first_and_the_exit_code_is_1(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    create_chat(ada, "untouched")
    tamper("UPDATE history_message SET body = replace(body, 'two', 'six') WHERE seq = %s", 2)
    lines: list[str] = []
    with pytest.raises(CommandError, match="The record is damaged") as caught:
        run_history("verify", out=Lines(lines))
    assert caught.value.returncode == 1
    assert lines[0].startswith(f"damage  session {session.pk}, entry 2: ")


@pytest.mark.django_db
def test_findings_for_programs_come_one_a_line_and_end_with_a_verdict(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    tamper("UPDATE history_message SET body = replace(body, 'two', 'six') WHERE seq = %s", 2)
    lines: list[str] = []
    with pytest.raises(CommandError):
        run_history("verify", "--json", out=Lines(lines))
    findings = [json.loads(line) for line in lines]
    assert (findings[0]["session"], findings[0]["seq"], findings[0]["severity"]) == (str(session.pk), 2, "damage")
    assert findings[-1]["healthy"] is False
    assert findings[-1]["damaged"] >= 1


@pytest.mark.django_db
def test_a_wrong_counter_is_told_apart_from_damage(ada: Any) -> None:
    session = create_chat(ada, "one")
    Session.objects.filter(pk=session.pk).update(message_count=7)
    with pytest.raises(CommandError, match="The record is intact, but derived data is not"):
        run_history("verify")


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["owner_id", "hold", "state = 'deleted', hidden_at", "title", "expires_at"])
def test_a_column_of_a_session_that_was_changed_behind_its_back_is_reported(ada: Any, bob: Any, column: str) -> None:
    session = create_chat(ada, "one", source="relay")
    assert "Healthy." in run_history("verify")[0]
    values = {"owner_id": bob.pk, "hold": True, "title": "Another"}
    tamper(f"UPDATE history_session SET {column} = %s", values.get(column, timezone.now() + timedelta(days=3_650)))
    lines: list[str] = []
    with pytest.raises(CommandError):
        run_history("verify", out=Lines(lines))
    assert str(session.pk) in lines[0]


@pytest.mark.django_db
def test_only_the_sessions_that_were_named_are_looked_at(ada: Any) -> None:
    healthy, altered = create_chat(ada, "one"), create_chat(ada, "two")
    tamper("UPDATE history_message SET body = replace(body, 'two', 'six')")
    assert "Healthy." in run_history("verify", healthy.pk)[0]
    with pytest.raises(CommandError, match="damaged"):
        run_history("verify", str(altered.pk)[:13])


@pytest.mark.django_db
def test_a_checkpoint_shows_later_that_the_newest_entry_is_missing(ada: Any, tmp_path: Path) -> None:
    session = create_chat(ada, "one", "two", "three")
    file = tmp_path / "checkpoint.json"
    run_history("verify", "--write-checkpoint", file)
    assert "Healthy." in run_history("verify", "--checkpoint", file)[0]
    last = Message.objects.get(session=session, seq=2).seal
    tamper("DELETE FROM history_searchrow WHERE message_id IN (SELECT id FROM history_message WHERE seq = 3)")
    tamper("DELETE FROM history_message WHERE seq = 3")
    Session.objects.filter(pk=session.pk).update(version=2, head=2, last_seal=last, message_count=2)
    lines: list[str] = []
    with pytest.raises(CommandError, match="damaged"):
        run_history("verify", "--checkpoint", file, out=Lines(lines))
    assert any(f"session {session.pk}, entry 3" in line for line in lines)


@pytest.mark.django_db
def test_no_checkpoint_is_written_of_a_damaged_record(ada: Any, tmp_path: Path) -> None:
    create_chat(ada, "one")
    tamper("UPDATE history_message SET body = replace(body, 'one', 'six')")
    with pytest.raises(CommandError):
        run_history("verify", "--write-checkpoint", tmp_path / "checkpoint.json")
    assert not (tmp_path / "checkpoint.json").exists()


@pytest.mark.django_db
@pytest.mark.parametrize("content", [None, "no JSON", "{}", "[1]"])
def test_something_that_is_no_checkpoint_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "checkpoint.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CommandError, match="checkpoint") as caught:
        run_history("verify", "--checkpoint", file)
    assert caught.value.returncode == 2


# As a program


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    variables = {"DATABASE_URL": f"sqlite:///{tmp_path}/parley.sqlite3", "PARLEY_DATA_DIR": str(tmp_path / "data")}
    return {**os.environ, **variables}


def manage(environment: dict[str, str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True, check=False, **options)


@pytest.mark.any_database
def test_the_exit_codes_are_as_documented_and_errors_are_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    unready = manage(environment, "history", "list")
    assert unready.returncode == 1
    assert "Traceback" not in unready.stderr
    assert len(unready.stderr.splitlines()) == 1
    copy_migrated_file(tmp_path / "parley.sqlite3")
    unknown = manage(environment, "history", "show", "abc")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert unknown.stderr == "CommandError: There is no session abc. `history list` shows all sessions.\n"
    assert manage(environment, "history", "fold").returncode == 2


@pytest.mark.any_database
def test_a_reader_who_leaves_early_is_no_error(environment: dict[str, str], tmp_path: Path) -> None:
    copy_migrated_file(tmp_path / "parley.sqlite3")
    source, sink = os.pipe()
    os.close(source)
    with os.fdopen(sink, "w") as closed:
        command = [sys.executable, "manage.py", "history", "verify"]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr
    assert b"BrokenPipe" not in done.stderr


@pytest.mark.any_database
def test_a_terminal_gets_a_bar_on_stderr_and_the_result_on_stdout(environment: dict[str, str], tmp_path: Path) -> None:
    copy_migrated_file(tmp_path / "parley.sqlite3")
    ours, theirs = pty.openpty()
    command = [sys.executable, "manage.py", "history", "verify"]
    environment = {**environment, "TERM": "xterm-256color"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    watched = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "Verifying" in watched
    assert done.stdout.decode().startswith("Healthy.")
    assert "\x1b" not in done.stdout.decode()
