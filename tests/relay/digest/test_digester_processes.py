"""The digester as a process: killed, started twice, without its database, and in the hands of the background work."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.conf import settings as live_settings
from django.db import OperationalError

from history.access import keys
from history.models import ApiKey, Exchange, Message, Session
from project.accounts.models import User
from relay.digest import process
from relay.gateway.journal_settings import journal_folder
from tests.relay.digest.programs import Chat
from tests.relay.digest.relayed import Relay, database_away, model_answer, path_of, sessions
from tests.servers.processes import ROOT, clean_environment, database_url, wait_for

pytestmark = pytest.mark.runs_first

CHAT = "openai-chat"


def hello(text: str = "hello") -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True}


@contextmanager
def digesting(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = clean_environment(
        DATABASE_URL=database_url(),
        PARLEY_DATA_DIR=str(data),
        PARLEY_FINGERPRINT_KEY=live_settings.PARLEY_FINGERPRINT_KEY.decode(),
    )
    command = [sys.executable, "-m", "relay.digest"]
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.mark.django_db(transaction=True)
class TestProcesses:
    def test_kill_9_of_the_digester_doubles_nothing_and_loses_nothing(self, relay: Relay, tmp_path: Path) -> None:
        talks = [Chat(relay) for _ in range(12)]
        for turn in range(5):
            for number, talk in enumerate(talks):
                answer = model_answer(f"Answer {turn} to {number}")
                relay.answer(talk.send(f"Question {turn} of {number}"), answer)
                talk.add_answer(answer)
        for least in (1, 30):
            with digesting(tmp_path) as child:
                wait_for(lambda least=least: Exchange.objects.filter(end_reason="done").count() >= least)  # type: ignore[misc]
                child.send_signal(signal.SIGKILL)
                child.wait()
        with digesting(tmp_path):
            wait_for(lambda: Exchange.objects.filter(end_reason="done").count() == 60)
        assert [len(path_of(session)) for session in sessions()] == [10] * 12
        assert Message.objects.count() == 120

    def test_it_sees_a_call_within_a_second_and_ends_with_its_parent(self, relay: Relay, tmp_path: Path) -> None:
        relay.relay_call(CHAT, hello("warm up"), model_answer("yes"))
        with digesting(tmp_path) as child:
            relay.answer(relay.send(CHAT, hello("first")), model_answer("1"))
            wait_for(lambda: Session.objects.filter(title="first").exists())
            started = time.monotonic()
            exchange = relay.send(CHAT, hello("second"))
            wait_for(lambda: Session.objects.filter(title="second").exists(), seconds=5)
            assert time.monotonic() - started < 1.0
            relay.answer(exchange, model_answer("2"))
            wait_for(lambda: Message.objects.filter(content="2").exists(), seconds=5)
            assert child.stdin is not None
            child.stdin.close()
            assert child.wait(20) == 0

    def test_two_at_once_are_one(self, relay: Relay, tmp_path: Path) -> None:
        relay.answer(relay.send(CHAT, hello()), model_answer("1"))
        with digesting(tmp_path):
            wait_for(lambda: Exchange.objects.filter(end_reason="done").exists())
            with digesting(tmp_path) as other:
                assert other.wait(20) == 0

    def test_with_the_database_away_the_journal_waits_and_catches_up_in_order(self, relay: Relay) -> None:
        talk = Chat(relay)
        talk.relay_call("One?", model_answer("1"))
        with database_away():
            for turn in range(3):
                relay.answer(talk.send(f"Away {turn}"), model_answer(f"Still {turn}"))
                talk.add_answer(model_answer(f"Still {turn}"))
                with pytest.raises(OperationalError):
                    relay.digester.step()
        relay.digest()
        (session,) = sessions()
        assert len(path_of(session)) == 8
        assert path_of(session)[-1] == "a:Still 2"

    def test_a_worker_that_died_leaves_calls_that_say_so(self, key: ApiKey, tmp_path: Path) -> None:
        relay = Relay(tmp_path / "journal", key)
        with subprocess.Popen(
            [sys.executable, "-m", "tests.relay.gateway.writer", str(relay.folder), str(key.pk), str(key.owner_id)],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            endless = writer.stdout.readline().split()[0]
            for _ in range(100):
                writer.stdout.readline()
            relay.digest()
            assert Exchange.objects.get(pk=endless).ended_at is None
            writer.send_signal(signal.SIGKILL)
            writer.stdout.read()
        for _ in range(30):
            relay.digest()
        assert Exchange.objects.get(pk=endless).end_reason == "server_lost"
        assert not Exchange.objects.filter(ended_at=None).exists()


@pytest.mark.django_db(transaction=True)
class TestJob:
    @pytest.fixture(autouse=True)
    def _its_own_house(self, tmp_path: Path, settings: pytest.FixtureRequest) -> Iterator[None]:
        settings.PARLEY_DATA_DIR = tmp_path  # type: ignore[attr-defined]
        yield
        process.stop()

    def test_in_a_thread_it_digests_where_it_runs(self, relay: Relay, settings: pytest.FixtureRequest) -> None:
        settings.PARLEY_DIGESTER = "thread"  # type: ignore[attr-defined]
        relay.answer(relay.send(CHAT, hello()), model_answer("Hello!"))
        process.keep_running()
        assert Exchange.objects.get().end_reason == "done"

    def test_as_a_process_it_is_started_once_and_goes_with_us(
        self, relay: Relay, settings: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.PARLEY_DIGESTER = "process"  # type: ignore[attr-defined]
        monkeypatch.setenv("DATABASE_URL", database_url())
        monkeypatch.setenv("PARLEY_FINGERPRINT_KEY", live_settings.PARLEY_FINGERPRINT_KEY.decode())
        monkeypatch.setattr(process, "LOOK_SECONDS", 0.0)
        relay.answer(relay.send(CHAT, hello()), model_answer("Hello!"))
        process.keep_running()
        child = process._own.child
        assert child is not None
        process.keep_running()
        assert process._own.child is child
        wait_for(lambda: Exchange.objects.filter(end_reason="done").exists())
        process.stop()
        assert child.wait(20) == 0

    def test_it_waits_for_the_first_call_as_soon_as_there_is_a_key_for_the_relay(
        self, ada: User, settings: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.PARLEY_DIGESTER = "process"  # type: ignore[attr-defined]
        monkeypatch.setenv("DATABASE_URL", database_url())
        monkeypatch.setattr(process, "LOOK_SECONDS", 0.0)
        process.keep_running()
        keys.create(name="reader", owner=ada, scopes=["read"])
        process.keep_running()
        assert (process._own.child, journal_folder().exists()) == (None, False)
        keys.create(name="laptop", owner=ada)
        process.keep_running()
        assert process._own.child is not None
        assert journal_folder().stat().st_mode & 0o777 == 0o700
