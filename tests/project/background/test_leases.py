"""Leases: one holder at a time, decided by the database."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from django.db import connections
from django.db.models.functions import Now

from project.background.scheduler import Leases
from project.models import Lease
from tests.servers.processes import wait_for


def take_lease(name: str, *, holder: str, seconds: float) -> bool:
    held = Leases(holder=holder, seconds=seconds)
    held.renew(name)
    return name in held


@pytest.mark.django_db
def test_a_lease_is_taken_kept_and_refused_to_others() -> None:
    assert take_lease("sweep", holder="a", seconds=30)
    assert not take_lease("sweep", holder="b", seconds=30)
    assert take_lease("sweep", holder="a", seconds=30)
    assert take_lease("purge", holder="b", seconds=30)


@pytest.mark.django_db(transaction=True)
def test_a_dead_holders_lease_is_taken_over_when_it_runs_out() -> None:
    assert take_lease("sweep", holder="a", seconds=0.2)
    wait_for(lambda: take_lease("sweep", holder="b", seconds=30), seconds=10, what="the lease running out")
    assert not take_lease("sweep", holder="a", seconds=30)


@pytest.mark.django_db(transaction=True)
def test_what_is_given_back_can_be_taken_at_once() -> None:
    held = Leases(holder="a", seconds=30)
    held.renew("sweep")
    held.release()
    assert take_lease("sweep", holder="b", seconds=30)


@pytest.mark.django_db(transaction=True)
def test_of_many_who_ask_at_once_one_gets_it() -> None:
    ready, won = threading.Barrier(8), []

    def ask(holder: str) -> None:
        ready.wait()
        try:
            won.append(take_lease("sweep", holder=holder, seconds=30))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]


@pytest.mark.django_db
def test_a_process_knows_when_its_lease_was_taken_from_it() -> None:
    held = Leases(holder="a", seconds=30)
    held.renew("sweep")
    assert "sweep" in held
    Lease.objects.update(holder="b", expires_at=Now() + timedelta(seconds=30))
    held.renew("sweep")
    assert "sweep" not in held


@pytest.mark.django_db
def test_a_process_that_cannot_renew_lets_go_by_itself() -> None:
    held = Leases(holder="a", seconds=0.1)
    held.renew("sweep")
    time.sleep(0.15)
    assert "sweep" not in held
