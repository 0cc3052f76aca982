"""The admin's lists at size, against the same lists when there were 1,000 messages: the admin shows everybody's.

The baseline cannot be timed in turns, because there is one record: it is taken in the same run, before the load.
"""

from __future__ import annotations

import gc
import statistics
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.test import Client
from django.test.utils import override_settings

from bench.load import Talk, fill, vocabulary
from bench.measure import Line, Table, seconds

GOAL = 3.0
WORDS = vocabulary()
LISTS = (
    ("sessions", "/admin/history/session/"),
    ("sessions, two words", f"/admin/history/session/?q={WORDS[2]}+{WORDS[30]}"),
    ("sessions of one source", "/admin/history/session/?source=chat"),
    ("messages", "/admin/history/message/"),
    ("messages, two words", f"/admin/history/message/?q={WORDS[2]}+{WORDS[30]}"),
    ("tool calls", "/admin/history/toolcall/"),
    ("exchanges", "/admin/history/exchange/"),
    ("audit events", "/admin/history/auditevent/"),
)


@dataclass(frozen=True)
class Before:
    client: Client
    times: dict[str, float]


def before(*, rounds: int) -> Before:
    """As it is with 1,000 messages."""
    owner = get_user_model().objects.create_user("few")
    fill([owner] * 40, Talk(seed=8), 25)
    client = Client(raise_request_exception=True)
    client.force_login(get_user_model().objects.create_superuser("bench-admin"))
    return Before(client, _times(client, rounds))


def measure(before: Before, table: Table, *, rounds: int) -> None:
    for name, now in _times(before.client, rounds).items():
        then = before.times[name]
        note = f"{now * 1e3:.1f} ms against {then * 1e3:.1f} ms"
        table.add(Line(f"admin, {name}: against 1,000 messages", now / then, "×", GOAL, note=note))


@override_settings(ALLOWED_HOSTS=["testserver"])
def _times(client: Client, rounds: int) -> dict[str, float]:
    return {name: _median(client, address, rounds=max(5, rounds // 4)) for name, address in LISTS}


def _median(client: Client, address: str, *, rounds: int) -> float:
    def read() -> None:
        response = client.get(address)
        assert response.status_code == 200, (address, response.status_code)

    read()
    gc.collect()
    return statistics.median(seconds(read) for _ in range(rounds))
