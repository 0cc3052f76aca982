"""`/metrics`: what Prometheus reads, who may read it, and that it says what was lost while the disk is full."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from history.access import keys
from history.record import counters
from relay.digest import state
from relay.digest.state import read_state
from relay.gateway import recording
from relay.gateway.journal.records import CallAccepted
from relay.models import JournalPosition, Run
from tests.factories import create_chat
from tests.relay.digest.relayed import database_away
from tests.servers.processes import ROOT, clean_environment

LINE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z]+="[^"\\]*",?)*)\})? (\S+)$')


@pytest.fixture(autouse=True)
def _its_own_house(settings: Any, tmp_path: Path) -> Iterator[None]:
    settings.PARLEY_DATA_DIR = tmp_path
    recording.close_journal()
    yield
    recording.close_journal()
    state.stop_stats()


def read(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """As a scraper does: a type before each metric, one sample a line."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    typed = set(re.findall(r"^# TYPE (\w+) (?:counter|gauge)$", text, re.MULTILINE))
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = LINE.match(line)
        assert match, line
        assert match[1] in typed
        labels = dict(re.findall(r'([a-z]+)="([^"]*)"', match[2] or ""))
        found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def scraped(client: Client, **headers: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    response = client.get("/metrics", headers=headers)
    assert response.status_code == 200
    assert response["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.content.endswith(b"\n")
    return read(response.content.decode())


@pytest.mark.django_db
def test_it_tells_calls_runs_backlog_and_losses(client: Client, staff: Any, ada: Any) -> None:
    JournalPosition.objects.create(pk="there", lost_calls=3, lost_bytes=4096, lost_at=datetime.now(UTC))
    Run.objects.create(session=create_chat(ada, "Hello?"), owner=ada)
    counters.ended["relay", "upstream_cut"] += 2
    client.force_login(staff)
    metrics = scraped(client)
    assert metrics["parley_database_up"] == [({}, 1)]
    assert metrics["parley_runs"] == [({}, 1)]
    assert metrics["parley_journal_lost_calls_total"] == [({}, 3)]
    assert metrics["parley_journal_lost_bytes_total"] == [({}, 4096)]
    assert metrics["parley_journal_waiting_bytes"] == [({}, 0)]
    cut = {
        labels["source"]: count
        for labels, count in metrics["parley_exchanges_total"]
        if labels["outcome"] == "upstream_cut"
    }
    assert cut["relay"] >= 2
    for name in ("parley_relay_calls", "parley_sockets", "parley_resident_bytes"):
        assert len(metrics[name]) == 1


@pytest.mark.django_db
def test_who_may_read_it(client: Client, staff: Any, ada: Any, settings: Any) -> None:
    reading, admin = (keys.create(name=scope, owner=staff, scopes=[scope]).secret for scope in ("read", "admin"))
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers={"authorization": f"Bearer {reading}"}).status_code == 401
    assert client.get("/metrics", headers={"authorization": "Basic eDp5"}).status_code == 401
    assert scraped(client, authorization=f"Bearer {admin}")
    client.force_login(ada)
    assert client.get("/metrics").status_code == 404
    settings.PARLEY_METRICS = "open"
    client.logout()
    assert scraped(client)
    settings.PARLEY_METRICS = "off"
    client.force_login(staff)
    assert client.get("/metrics").status_code == 404
    assert client.get("/metrics", headers={"authorization": f"Bearer {admin}"}).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_without_the_database_it_tells_the_rest(client: Client, settings: Any) -> None:
    settings.PARLEY_METRICS = "open"
    with database_away():
        metrics = scraped(client)
    assert metrics["parley_database_up"] == [({}, 0)]
    assert "parley_journal_lost_calls_total" not in metrics
    assert len(metrics["parley_resident_bytes"]) == 1


@pytest.mark.django_db
def test_what_a_full_disk_loses_is_told_while_it_is_full(
    client: Client, staff: Any, settings: Any, tmp_path: Path
) -> None:
    settings.PARLEY_JOURNAL_MB = 0
    journal = recording.journal()
    record = CallAccepted(
        exchange=uuid4(), at=0.0, key=1, owner=1, recording="full", dialect="openai-chat", kind="chat"
    )
    assert not journal.accept(record, b"x" * 99)
    client.force_login(staff)
    metrics = scraped(client)
    assert [count for _, count in metrics["parley_journal_untold_calls"]] == [1]
    assert [count for _, count in metrics["parley_journal_untold_bytes"]] == [99]
    assert read_state().lost_calls == 1
    page = client.get("/admin/").content.decode()
    assert 'id="journal"' in page
    assert "The journal is full: 0\xa0bytes." in page


OTHER = """
import django, sys
django.setup()
from history.record import counters
from relay.digest import state
counters.ended["relay", "done"] += 41
state.write_stats()
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.django_db
@pytest.mark.any_database
def test_other_processes_of_the_machine_are_told_apart_and_forgotten_when_they_are_gone(
    client: Client, staff: Any, tmp_path: Path
) -> None:
    environment = clean_environment(PARLEY_DATA_DIR=str(tmp_path), DJANGO_SETTINGS_MODULE="project.settings")
    client.force_login(staff)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        state.write_stats()
        metrics = scraped(client)
        assert len({labels["process"] for labels, _ in metrics["parley_resident_bytes"]}) == 2
        theirs = {"source": "relay", "outcome": "done", "process": str(other.pid)}
        assert (theirs, 41) in metrics["parley_exchanges_total"]
        other.kill()
    assert len(scraped(client)["parley_resident_bytes"]) == 1
    assert len(list(state.own_file.folder.iterdir())) == 1
