"""Staff see on the admin's front page what the relay could not record, and when recording falls behind."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from project.accounts.models import User
from relay.digest import digester
from relay.digest.state import read_state
from relay.models import JournalPosition
from tests.relay.digest.relayed import Relay, model_answer

pytestmark = pytest.mark.django_db

HELLO = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(autouse=True)
def _its_own_house(settings: Any, tmp_path: Path) -> None:
    settings.PARLEY_DATA_DIR = tmp_path


def front_page(client: Client, staff: User) -> str:
    client.force_login(staff)
    return client.get("/admin/").content.decode()


def test_nothing_is_said_while_all_is_well(client: Client, staff: User, relay: Relay) -> None:
    (relay.folder).mkdir()
    (relay.folder / "name").write_text("test")
    relay.relay_call("openai-chat", HELLO, model_answer("Hello!"))
    assert read_state().waiting == 0
    assert 'id="journal"' not in front_page(client, staff)


def test_losses_are_told_with_their_reason(client: Client, staff: User) -> None:
    JournalPosition.objects.create(
        pk="here", lost_calls=3, lost_bytes=4096, lost_at=datetime.now(UTC), lost_why="No space left on device"
    )
    page = front_page(client, staff)
    assert "3 calls" in page
    assert "The disk was full." in page


def test_a_backlog_is_told_once_it_is_old(client: Client, staff: User, relay: Relay) -> None:
    relay.send("openai-chat", HELLO)
    assert read_state().waiting > 100
    later = read_state(datetime.now(UTC) + timedelta(minutes=5))
    assert later.is_late
    assert 'id="journal"' not in front_page(client, staff)


def test_a_long_answer_is_no_backlog(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digester, "SAVE_SECONDS", 0.0)
    relay.folder.mkdir()
    (relay.folder / "name").write_text("test")
    exchange = relay.send("openai-chat", {**HELLO, "stream": True})
    relay.digest()
    relay.journal.reply(exchange, b"x" * 100_000)
    assert read_state().waiting > 100
    relay.digest()
    assert not read_state(datetime.now(UTC) + timedelta(minutes=5)).is_late


def test_losses_and_backlogs_are_told_in_the_readers_own_words(client: Client, staff: User) -> None:
    why = "the journal holds its 1048576 bytes already"
    JournalPosition.objects.create(pk="here", lost_calls=1, lost_bytes=4096, lost_at=datetime.now(UTC), lost_why=why)
    page = unescape(front_page(client, staff))
    assert "could not record 1 call, 4.0\xa0KB." in page
    assert "The journal is full: 1.0\xa0MB." in page
    assert "(UTC)" in page
    staff.language = "zh-hans"
    staff.save()
    assert "日志已满" in front_page(client, staff)
