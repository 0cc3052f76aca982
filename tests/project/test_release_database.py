"""Upgrades from databases of earlier releases, kept in `tests/data/` (made by `scripts/make_release_database.py`)."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.servers.databases import create_empty_database
from tests.servers.processes import ROOT, run_manage

RELEASES = sorted((ROOT / "tests" / "data").glob("release-*"))
# All tests of a release share one upgraded database and leave it with the newest migrations. A script is one process,
# because the start of a process costs more than a migration.
COMMON = """
import json
from django.core.management import call_command
from django.db import connection

def migrate(*names):
    call_command("migrate", *names, verbosity=0)

def rows(select):
    with connection.cursor() as cursor:
        cursor.execute(select)
        return cursor.fetchall()

def column_or(name, otherwise):
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, "history_session")
    return name if name in [column.name for column in columns] else otherwise
"""
# Prints what each request was answered with.
GET_PAGES = """
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
def links():
    name = column_or("continues_id", "metadata")
    found = rows(f"SELECT title, {name} FROM history_session WHERE title LIKE 'Part %' ORDER BY title")
    return [name, *([title, str(value or '').replace('-', '')] for title, value in found)]

newest = links()
migrate("history", "0001")
oldest = links()
migrate()
print(json.dumps([newest, oldest, links()]))
"""
# Puts one session into each state; all others are open. Prints each combination of state and time of deletion.
GET_STATES = """
from django.db.models import F
from history.models import Session

def states():
    state = column_or("state", "'-'")
    found = rows(f"SELECT {state}, hidden_at, changed_at FROM history_session")
    return sorted({(state, "changed" if at == changed else str(at)[:10]) for state, at, changed in found})

before = list(Session.objects.values_list("pk", "state", "hidden_at"))
ids = list(Session.objects.order_by("created_at", "pk").values_list("pk", flat=True))[:4]
Session.objects.update(state="open", hidden_at=None)
for pk, state in dict(zip(ids, ["open", "deleted", "incomplete", "removing"], strict=True)).items():
    hidden_at = F("changed_at") if state in ("deleted", "removing") else None
    Session.objects.filter(pk=pk).update(state=state, hidden_at=hidden_at)
newest = states()
migrate("history", "0002")
dates = states()
migrate()
print(json.dumps([newest, dates, states()]))
for pk, state, hidden_at in before:
    Session.objects.filter(pk=pk).update(state=state, hidden_at=hidden_at)
"""
# Adds rows of a removed session to the tables as they were before relay 0002, where `session` has no foreign key.
COUNT_RUNS = """
from uuid import uuid4
from django.db.migrations.loader import MigrationLoader
from relay.models import QueuedMessage, Run

def runs():
    return sorted(str(run.session_id) for run in Run.objects.all()), QueuedMessage.objects.count()

before = runs()
migrate("relay", "0001")
models = MigrationLoader(connection).project_state([("relay", "0001_initial")]).apps
owner = models.get_model("accounts", "User").objects.first()
models.get_model("relay", "Run").objects.create(session=uuid4(), owner=owner)
models.get_model("relay", "QueuedMessage").objects.create(session=uuid4(), owner=owner, text="Too late.")
added = models.get_model("relay", "Run").objects.count()
migrate()
print(json.dumps([before, added, runs()]))
"""
# Compares the database before an upgrade with the one after the rollback: migrations, columns, constraints and rows.
UPGRADE_AND_BACK = """
from django.db.migrations.recorder import MigrationRecorder

# Django adds rows to these for new models and never removes them.
OF_DJANGO = {{"django_content_type", "auth_permission", "django_migrations"}}

def content():
    found = {{"migrations": sorted(MigrationRecorder(connection).applied_migrations())}}
    introspection = connection.introspection
    with connection.cursor() as cursor:
        for table in introspection.table_names(cursor):
            columns = sorted(column.name for column in introspection.get_table_description(cursor, table))
            constraints = introspection.get_constraints(cursor, table).values()
            found[table] = [columns, sorted(map(repr, constraints))]
            if table not in OF_DJANGO:
                names = ", ".join(map(connection.ops.quote_name, columns))
                cursor.execute(f"SELECT {{names}} FROM {{connection.ops.quote_name(table)}}")
                found[table].append(sorted(map(repr, cursor.fetchall())))
    return found

release = content()
migrate()
newest = content()
for app, name in {targets}:
    migrate(app, name)
back = content()
migrate()
changed = lambda one, other: sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
print(json.dumps([changed(release, newest), changed(release, back)]))
"""


@pytest.fixture(scope="module", params=RELEASES, ids=lambda folder: folder.name)
def release(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


@pytest.fixture(scope="module")
def upgraded(release: Path, tmp_path_factory: pytest.TempPathFactory, own_database: None) -> Iterator[dict[str, str]]:
    """The environment of a process: a copy of the release's database after `migrate`, with the release's secrets."""
    with restore(release, tmp_path_factory.mktemp("upgraded")) as environment:
        migrated = run_manage("migrate", **environment)
        assert migrated.returncode == 0, migrated.stderr
        yield environment


@contextmanager
def restore(release: Path, folder: Path) -> Iterator[dict[str, str]]:
    data = folder / "data"
    data.mkdir()
    for name in ("secret.key", "fingerprint.key"):
        shutil.copy(release / name, data)
    with create_empty_database(folder) as url:
        load(release, url)
        yield {"DATABASE_URL": url, "PARLEY_DATA_DIR": str(data)}


def load(release: Path, url: str) -> None:
    if url.startswith("sqlite"):
        content = gzip.decompress((release / "parley.sqlite3.gz").read_bytes())
        Path(url.removeprefix("sqlite:///")).write_bytes(content)
    else:
        with psycopg.connect(url) as database:
            database.execute(gzip.decompress((release / "postgresql.sql.gz").read_bytes()))


def run_script(code: str, environment: dict[str, str]) -> Any:
    """What a script prints, as JSON."""
    printed = run_manage("shell", "-c", COMMON + code, **environment)
    assert printed.returncode == 0, printed.stderr
    return json.loads(printed.stdout.splitlines()[-1])


def assert_healthy(environment: dict[str, str]) -> None:
    verified = run_manage("history", "verify", **environment)
    assert verified.returncode == 0, verified.stdout
    assert verified.stdout.startswith("Healthy.")


def test_release_database_after_migrate_is_healthy(upgraded: dict[str, str]) -> None:
    assert_healthy(upgraded)


def test_release_database_after_migrate_serves_its_sessions(release: Path, upgraded: dict[str, str]) -> None:
    contents = (release / "contents.json").read_text(encoding="utf-8")
    signed_in, *pages = run_script(GET_PAGES.format(contents=contents), upgraded)
    assert signed_in
    assert [status for status, _ in pages] == [200, 200, 200, 200]
    branches, tool_calls, shared, over_rest = (text for _, text in pages)
    assert "And a hostel?" in branches
    assert "Unknown metric: fan" in tool_calls
    assert "In the old town." in shared
    assert "List the files." in over_rest
    assert "AKIA" not in over_rest


def test_link_of_a_linked_session_is_kept_in_metadata(upgraded: dict[str, str]) -> None:
    newest, oldest, again = run_script(GET_LINKS, upgraded)
    name, first, second = newest
    assert (name, first) == ("metadata", ["Part one", "{}"])
    assert oldest == ["continues_id", ["Part one", ""], ["Part two", json.loads(second[1])["continues"]]]
    assert again == newest
    assert_healthy(upgraded)


def test_runs_of_removed_sessions_are_left_out_by_the_foreign_key(upgraded: dict[str, str]) -> None:
    """The foreign keys of 0002 are added behind a row whose session is gone, and are taken back."""
    before, added, after = run_script(COUNT_RUNS, upgraded)
    assert added == len(before[0]) + 1
    assert after == before


def test_states_of_sessions_become_dates_and_states_again(upgraded: dict[str, str]) -> None:
    in_every_state = [["deleted", "changed"], ["incomplete", "None"], ["open", "None"], ["removing", "changed"]]
    newest, dates, again = run_script(GET_STATES, upgraded)
    assert newest == in_every_state
    assert dates == [["-", "1970-01-01"], ["-", "1970-01-02"], ["-", "None"], ["-", "changed"]]
    assert again == in_every_state


def test_rollback_of_the_docs_gives_the_database_of_the_release(
    release: Path, tmp_path: Path, own_database: None
) -> None:
    page = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")
    targets = re.findall(r"manage\.py migrate (\w+) (\d{4})$", page, re.MULTILINE)
    with restore(release, tmp_path) as environment:
        by_upgrade, after_rollback = run_script(UPGRADE_AND_BACK.format(targets=targets), environment)
        assert {"migrations", "history_session", "relay_run"} <= set(by_upgrade)
        assert after_rollback == []
        assert_healthy(environment)
