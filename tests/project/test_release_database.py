"""Upgrades from databases of earlier releases, kept in `tests/data/` (made by `scripts/make_release_database.py`)."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers.processes import ROOT, run_manage

RELEASES = sorted((ROOT / "tests" / "data").glob("release-*"))
# Prints what each request was answered with, as one JSON list.
GET_PAGES = """
import json
from django.test import Client
contents = json.loads({contents!r})
client = Client(headers={{"host": "localhost"}})
visitor = Client(headers={{"host": "localhost"}})
signed_in = client.login(username="ada", password=contents["password"])
key = {{"authorization": "Bearer " + contents["api_key"]}}
sessions = contents["sessions"]
pages = [
    client.get(f"/s/{{sessions['branches']}}/"),
    client.get(f"/s/{{sessions['tool_calls']}}/"),
    visitor.get(f"/shared/{{contents['share_token']}}/"),
    visitor.get(f"/api/history/sessions/{{sessions['relayed']}}/messages", headers=key),
]
print(json.dumps([signed_in, *([page.status_code, page.content.decode()] for page in pages)]))
"""
# Prints the linked sessions: from the column of 0.1.0 if there is one, else from the metadata.
GET_LINKS = """
import json
from django.db import connection
with connection.cursor() as cursor:
    columns = [column.name for column in connection.introspection.get_table_description(cursor, "history_session")]
    name = "continues_id" if "continues_id" in columns else "metadata"
    cursor.execute(f"SELECT title, {name} FROM history_session WHERE title LIKE 'Part %' ORDER BY title")
    print(json.dumps([name, *([title, str(value or '').replace('-', '')] for title, value in cursor.fetchall())]))
"""
# Puts one session into each state; all others are open.
SET_STATES = """
from django.db.models import F
from history.models import Session
ids = list(Session.objects.order_by("created_at", "pk").values_list("pk", flat=True))[:4]
Session.objects.update(state="open", hidden_at=None)
states = dict(zip(ids, ["open", "deleted", "incomplete", "removing"], strict=True))
for pk, state in states.items():
    hidden_at = F("changed_at") if state in ("deleted", "removing") else None
    Session.objects.filter(pk=pk).update(state=state, hidden_at=hidden_at)
"""
# Prints each combination of state and time of deletion that sessions have.
GET_STATES = """
import json
from django.db import connection
with connection.cursor() as cursor:
    columns = [column.name for column in connection.introspection.get_table_description(cursor, "history_session")]
    state = "state" if "state" in columns else "'-'"
    cursor.execute(f"SELECT {state}, hidden_at, changed_at FROM history_session")
    rows = {(state, "changed" if at == changed else str(at)[:10]) for state, at, changed in cursor.fetchall()}
print(json.dumps(sorted(rows)))
"""

COUNT_RUNS = """
from relay.models import QueuedMessage, Run
print(sorted(str(run.session_id) for run in Run.objects.all()), QueuedMessage.objects.count())
"""
# Into the tables as they were before relay 0002, where `session` is a column without a foreign key.
ADD_ORPHANS = """
from datetime import UTC, datetime
from uuid import uuid4
from django.db import connection
from django.db.migrations.loader import MigrationLoader
models = MigrationLoader(connection).project_state([("relay", "0001_initial")]).apps
owner = models.get_model("accounts", "User").objects.first()
models.get_model("relay", "Run").objects.create(session=uuid4(), owner=owner)
models.get_model("relay", "QueuedMessage").objects.create(session=uuid4(), owner=owner, text="Too late.")
print("added")
"""


@pytest.fixture(params=RELEASES, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture
def upgraded(release: Path, tmp_path: Path, empty_database_url: str) -> dict[str, str]:
    """The environment of a process: a copy of the release's database after `migrate`, with the release's secrets."""
    data = tmp_path / "data"
    data.mkdir()
    for name in ("secret.key", "fingerprint.key"):
        shutil.copy(release / name, data)
    load(release, empty_database_url)
    environment = {"DATABASE_URL": empty_database_url, "PARLEY_DATA_DIR": str(data)}
    migrated = run_manage("migrate", **environment)
    assert migrated.returncode == 0, migrated.stderr
    return environment


def load(release: Path, url: str) -> None:
    if url.startswith("sqlite"):
        content = gzip.decompress((release / "parley.sqlite3.gz").read_bytes())
        Path(url.removeprefix("sqlite:///")).write_bytes(content)
    else:
        with psycopg.connect(url) as database:
            database.execute(gzip.decompress((release / "postgresql.sql.gz").read_bytes()))


def test_release_database_after_migrate_is_healthy(upgraded: dict[str, str]) -> None:
    verified = run_manage("history", "verify", **upgraded)
    assert verified.returncode == 0, verified.stdout
    assert verified.stdout.startswith("Healthy.")


def test_release_database_after_migrate_serves_its_sessions(release: Path, upgraded: dict[str, str]) -> None:
    contents = (release / "contents.json").read_text(encoding="utf-8")
    printed = run_manage("shell", "-c", GET_PAGES.format(contents=contents), **upgraded)
    assert printed.returncode == 0, printed.stderr
    signed_in, *pages = json.loads(printed.stdout.splitlines()[-1])
    assert signed_in
    assert [status for status, _ in pages] == [200, 200, 200, 200]
    branches, tool_calls, shared, over_rest = (text for _, text in pages)
    assert "And a hostel?" in branches
    assert "Unknown metric: fan" in tool_calls
    assert "In the old town." in shared
    assert "List the files." in over_rest
    assert "AKIA" not in over_rest


def test_link_of_a_linked_session_is_kept_in_metadata(upgraded: dict[str, str]) -> None:
    def migrate(*names: str) -> list[Any]:
        migrated = run_manage("migrate", *names, **upgraded)
        assert migrated.returncode == 0, migrated.stderr
        return links()

    def links() -> list[Any]:
        printed = run_manage("shell", "-c", GET_LINKS, **upgraded)
        assert printed.returncode == 0, printed.stderr
        return list(json.loads(printed.stdout.splitlines()[-1]))

    name, first, second = links()
    assert (name, first) == ("metadata", ["Part one", "{}"])
    target = json.loads(second[1])["continues"]
    assert migrate("history", "0001") == ["continues_id", ["Part one", ""], ["Part two", target]]
    assert migrate() == [name, first, second]
    assert run_manage("history", "verify", **upgraded).stdout.startswith("Healthy.")


def test_runs_of_removed_sessions_are_left_out_by_the_foreign_key(upgraded: dict[str, str]) -> None:
    """The foreign keys of 0002 are added behind a row whose session is gone, and are taken back."""

    def shell(code: str) -> str:
        printed = run_manage("shell", "-c", code, **upgraded)
        assert printed.returncode == 0, printed.stderr
        return printed.stdout.splitlines()[-1]

    before = shell(COUNT_RUNS)
    assert run_manage("migrate", "relay", "0001", **upgraded).returncode == 0
    assert shell(ADD_ORPHANS) == "added"
    migrated = run_manage("migrate", **upgraded)
    assert migrated.returncode == 0, migrated.stderr
    assert shell(COUNT_RUNS) == before


def test_states_of_sessions_become_dates_and_states_again(upgraded: dict[str, str]) -> None:
    def states(*names: str) -> list[Any]:
        if names:
            migrated = run_manage("migrate", *names, **upgraded)
            assert migrated.returncode == 0, migrated.stderr
        printed = run_manage("shell", "-c", GET_STATES, **upgraded)
        assert printed.returncode == 0, printed.stderr
        return list(json.loads(printed.stdout.splitlines()[-1]))

    marked = run_manage("shell", "-c", SET_STATES, **upgraded)
    assert marked.returncode == 0, marked.stderr
    in_every_state = [["deleted", "changed"], ["incomplete", "None"], ["open", "None"], ["removing", "changed"]]
    assert states() == in_every_state
    dates = [["-", "1970-01-01"], ["-", "1970-01-02"], ["-", "None"], ["-", "changed"]]
    assert states("history", "0002") == dates
    assert states("history") == in_every_state
