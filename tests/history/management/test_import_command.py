"""`manage.py history import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.core.management import CommandError

from history.models import Session
from project.accounts.models import User
from tests.clients import Lines, run_history
from tests.history.importing.files import chatgpt, chatgpt_node, claude_code, document, lines, text

pytestmark = pytest.mark.django_db

TALK = lines(claude_code("user", "u1", None, "Hi."), claude_code("assistant", "a1", "lost", [text("Hello.")]))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "talk.jsonl"
    path.write_bytes(TALK)
    return path


def test_it_says_what_was_imported_what_was_repaired_and_how_many(file: Path, ada: User) -> None:
    out, _ = run_history("import", file, "--owner", "ada")
    session = Session.objects.get()
    assert session.owner == ada
    assert f"imported  Hi.  {session.pk}" in out
    assert "repaired  The parent of an entry is missing from the file" in out
    assert "repaired among these          1" in out


def test_a_program_gets_one_object_a_line_and_the_counts_at_the_end(file: Path, ada: User) -> None:
    out, _ = run_history("import", file, "--owner", "ada", "--json")
    item, end = map(json.loads, out.splitlines())
    assert (item["outcome"], item["format"], item["entries"]) == ("imported", "claude-code", 3)
    assert end["report"]["imported"] == 1
    again = run_history("import", file, "--owner", "ada", "--json")[0].splitlines()
    assert json.loads(again[0])["outcome"] == "already there"


def test_a_dry_run_imports_nothing(file: Path, ada: User) -> None:
    out, err = run_history("import", file, "--owner", "ada", "--dry-run")
    assert "imported  Hi." in out
    assert "Nothing was imported" in err
    assert not Session.objects.exists()


def test_without_an_owner_it_is_the_first_of_the_staff(file: Path, ada: User, staff: User) -> None:
    run_history("import", file)
    assert Session.objects.get().owner == staff


def test_a_missing_owner_or_path_is_wrong_usage(file: Path, ada: User, tmp_path: Path) -> None:
    for arguments in ([file], [tmp_path / "nowhere", "--owner", "ada"]):
        with pytest.raises(CommandError) as refusal:
            run_history("import", *arguments)
        assert refusal.value.returncode == 2


def test_a_refusal_is_told_and_is_a_failure_but_the_rest_is_there(ada: User, tmp_path: Path) -> None:
    bad = chatgpt(chatgpt_node("u", None, "user", ["Hi."]), title="Broken", id=None, conversation_id=None)
    path = tmp_path / "conversations.json"
    path.write_bytes(document([bad, chatgpt(chatgpt_node("u", None, "user", ["Hi."]))]))
    printed: list[str] = []
    with pytest.raises(CommandError) as refusal:
        run_history("import", path, "--owner", "ada", out=Lines(printed))
    assert refusal.value.returncode == 1
    assert "refused  Broken" in printed
    assert "    this conversation has no id" in printed
    assert Session.objects.count() == 1
