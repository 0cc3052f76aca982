"""Files that the relay puts aside go with the session and the person they belong to, or when they are too old."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from history import retention
from history.access import audit, keys
from history.models import ApiKey, Exchange, Session
from history.privacy import erase_person, export_person
from project.accounts.models import User
from relay.digest import kept_files
from tests.factories import without_guards
from tests.relay.digest.relayed import Relay, exchange_of, model_answer, sessions
from tests.relay.digest.test_large_bodies import CHAT, MB, body_of, reply_of, send_reply

pytestmark = pytest.mark.django_db

NAME = {"X-Parley-Session-Id": "job-1"}


@pytest.fixture(autouse=True)
def _small(settings: Any, tmp_path: Path) -> None:
    settings.PARLEY_MAX_DIGEST_MB = 1
    settings.PARLEY_DATA_DIR = tmp_path


@pytest.fixture
def copy(relay: Relay) -> Path:
    """The copy of a reply that is too large."""
    path = relay.folder / str(send_reply(relay, reply_of("x" * (2 * MB)), NAME).metadata["reply_file"])
    assert path.stat().st_size > 2 * MB
    return path


def look_after_files(relay: Relay) -> None:
    """As the digester does it from time to time."""
    relay.digester._files_checked_at = None
    relay.digest()


def grow_old(path: Path, *, days: float) -> None:
    moment = time.time() - days * 86_400
    os.utime(path, (moment, moment))


def erase_session(session: Session) -> None:
    retention.erase(session, actor=None, reason="asked to")


def empty_trash(session: Session) -> None:
    retention.hide(session, actor=session.owner)
    retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=25))


def let_expire(session: Session) -> None:
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=31))


def drop_texts(session: Session) -> None:
    without_guards(ApiKey.objects.filter(sessions=session)).update(keep_body_days=1)
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=2))
    assert Session.objects.filter(pk=session.pk).exists()


def trim(session: Session) -> None:
    without_guards(ApiKey.objects.filter(sessions=session)).update(max_messages=2)
    retention.purge(dry_run=False)
    assert Session.objects.get(pk=session.pk).trimmed_through


class TestCopies:
    @pytest.mark.parametrize("remove", [erase_session, empty_trash, let_expire, drop_texts])
    def test_a_copy_goes_with_its_session_and_its_texts(
        self, relay: Relay, copy: Path, remove: Callable[[Session], None]
    ) -> None:
        look_after_files(relay)
        assert copy.exists()
        remove(sessions()[0])
        look_after_files(relay)
        assert not copy.exists()

    def test_a_copy_goes_when_its_turn_is_trimmed(self, relay: Relay, copy: Path) -> None:
        for number in range(3):
            relay.relay_call(CHAT, body_of(f"Question {number}"), model_answer(f"Answer {number}"), NAME)
        trim(sessions()[0])
        look_after_files(relay)
        assert not copy.exists()

    def test_requests_go_too_and_others_stay(self, relay: Relay, copy: Path) -> None:
        row = exchange_of(relay.relay_call(CHAT, body_of("y" * (2 * MB)), model_answer("2")))
        request = relay.folder / row.metadata["request_file"]
        assert row.session is not None
        erase_session(row.session)
        look_after_files(relay)
        assert (request.exists(), copy.exists()) == (False, True)

    def test_a_copy_is_kept_for_so_many_days_unless_its_session_is_held(
        self, relay: Relay, copy: Path, staff: User, settings: Any
    ) -> None:
        grow_old(copy, days=31)
        retention.hold(sessions()[0], actor=staff, reason="a case")
        look_after_files(relay)
        assert copy.exists()
        retention.release(sessions()[0], actor=staff, reason="over")
        settings.PARLEY_ASIDE_DAYS = 0
        look_after_files(relay)
        assert copy.exists()
        settings.PARLEY_ASIDE_DAYS = 30
        look_after_files(relay)
        assert not copy.exists()

    def test_a_copy_whose_call_is_under_way_stays(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, body_of("y" * (2 * MB)))
        relay.digest()
        copy = relay.folder / kept_files.name_of(exchange, "request", owner=relay.key.owner_id)
        without_guards(Exchange.objects.filter(pk=exchange)).update(metadata={})  # as if it were not committed
        look_after_files(relay)
        assert copy.exists()

    def test_an_answer_after_the_erasure_leaves_no_copy(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, body_of("Hello"), NAME)
        relay.digest()
        erase_session(sessions()[0])
        relay.journal.reply(exchange, reply_of("x" * (2 * MB)))
        relay.end(exchange)
        relay.digest()
        look_after_files(relay)
        assert kept_files.copies_in(relay.folder) == []

    def test_a_key_that_was_made_stricter_meanwhile_leaves_no_copy(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, body_of("y" * (2 * MB)))
        without_guards(ApiKey.objects.filter(pk=relay.key.pk)).update(recording="redacted")
        relay.answer(exchange, model_answer("2"))
        relay.digest()
        assert exchange_of(exchange).metadata["request_bytes"] > 2 * MB
        assert kept_files.copies_in(relay.folder) == []

    def test_copies_count_against_the_size_limit_of_the_journal(self, relay: Relay, copy: Path, settings: Any) -> None:
        settings.PARLEY_JOURNAL_MB = 3
        row = send_reply(relay, reply_of("z" * (2 * MB)))
        assert ("reply_file" in row.metadata, kept_files.copies_in(relay.folder)) == (False, [copy])


class TestPersons:
    def test_an_erasure_removes_the_copies_of_the_person_at_once(
        self, relay: Relay, copy: Path, ada: User, bob: User, staff: User
    ) -> None:
        held = (
            relay.folder
            / send_reply(relay, reply_of("h" * (2 * MB)), {"X-Parley-Session-Id": "held"}).metadata["reply_file"]
        )
        retention.hold(Session.objects.latest("created_at"), actor=staff, reason="a case")
        relay.key = keys.create(name="bob's", owner=bob, recording="full").api_key
        others = relay.folder / send_reply(relay, reply_of("b" * (2 * MB))).metadata["reply_file"]
        receipt = erase_person(ada, reason="Art. 17")
        assert (copy.exists(), held.exists(), others.exists()) == (False, True, True)
        assert receipt.removed["files_aside"] == 1

    def test_an_export_names_the_copies_of_the_person(
        self, relay: Relay, copy: Path, ada: User, tmp_path: Path
    ) -> None:
        export_person(ada, tmp_path / "ada", reason="asked")
        told = (tmp_path / "ada" / "files_aside.jsonl").read_text()
        assert str(copy.relative_to(relay.folder)) in told

    def test_an_erasure_removes_damaged_bytes_on_this_host_and_others(self, relay: Relay, ada: User) -> None:
        relay.folder.mkdir(exist_ok=True)
        here = relay.folder / "1-2-3.journal.40.damaged"
        here.write_bytes(b"whose?")
        erase_person(ada, reason="Art. 17")
        assert not here.exists()
        elsewhere = relay.folder / "1-2-4.journal.40.damaged"
        elsewhere.write_bytes(b"whose?")
        grow_old(elsewhere, days=1)
        look_after_files(relay)
        assert not elsewhere.exists()


class TestDamagedBytes:
    def test_they_go_after_so_many_days(self, relay: Relay) -> None:
        relay.folder.mkdir(exist_ok=True)
        young, old = (relay.folder / f"{name}.journal.40.damaged" for name in ("young", "old"))
        for path, days in ((young, 29), (old, 31)):
            path.write_bytes(b"whose?")
            grow_old(path, days=days)
        look_after_files(relay)
        assert (young.exists(), old.exists()) == (True, False)

    def test_the_oldest_go_where_they_are_too_many(self, relay: Relay, settings: Any) -> None:
        settings.PARLEY_JOURNAL_MB = 1
        relay.folder.mkdir(exist_ok=True)
        paths = [relay.folder / f"{days}.journal.40.damaged" for days in (3, 2, 1)]
        for path, days in zip(paths, (3, 2, 1), strict=True):
            path.write_bytes(bytes(MB // 2))
            grow_old(path, days=days)
        look_after_files(relay)
        assert [path.exists() for path in paths] == [False, True, True]

    def test_an_audit_event_of_another_kind_removes_nothing(self, relay: Relay, ada: User) -> None:
        relay.folder.mkdir(exist_ok=True)
        path = relay.folder / "1.journal.40.damaged"
        path.write_bytes(b"whose?")
        grow_old(path, days=1)
        audit.record("export", actor=ada.pk)
        look_after_files(relay)
        assert path.exists()


def test_a_file_of_a_process_that_died_before_naming_it_goes(relay: Relay) -> None:
    relay.folder.mkdir(exist_ok=True)
    young, old = (relay.folder / f"{name}.journal.new" for name in ("young", "old"))
    for path in (young, old):
        path.write_bytes(b"parley journal")
    grow_old(old, days=1)
    look_after_files(relay)
    assert (young.exists(), old.exists()) == (True, False)
