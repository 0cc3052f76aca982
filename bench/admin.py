"""The admin's lists at size, against the same lists of a record of 1,000 messages: the admin shows all users'.

The small record is a copy of the database from before the load, and the same pages are read from both in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.test import Client
from django.test.utils import override_settings

from bench.load import Talk, fill, vocabulary
from bench.measure import Line, Table, in_turns

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
    """Who looks, and the database as it was with 1,000 messages."""

    client: Client
    few: Any


def before(folder: Path) -> Before:
    owner = get_user_model().objects.create_user("few")
    fill([owner] * 40, Talk(seed=8), 25)
    client = Client(raise_request_exception=True)
    client.force_login(get_user_model().objects.create_superuser("bench-admin"))
    return Before(client, _copied(folder))


def _copied(folder: Path) -> Any:
    """A connection to a copy of the database."""
    name: Any = folder / "few.sqlite3"
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
        if connection.vendor == "sqlite":
            cursor.execute("VACUUM INTO %s", [str(name)])
    if connection.vendor == "postgresql":
        name = "few"
        copying = f'CREATE DATABASE {name} TEMPLATE "{connection.settings_dict["NAME"]}"'
        connections.close_all()
        with connection._nodb_cursor() as cursor:
            cursor.execute(copying)
    connections.databases["few"] = connection.settings_dict | {"NAME": name}
    return connections["few"]


def measure(before: Before, table: Table, *, rounds: int) -> None:
    with override_settings(ALLOWED_HOSTS=["testserver"]):
        for name, address in LISTS:
            read = partial(_read, before.client, address)
            now, then = in_turns(read, partial(_from_few, before, read), rounds=max(5, rounds // 4))
            note = f"{now * 1e3:.1f} ms against {then * 1e3:.1f} ms"
            table.add(Line(f"admin, {name}: against 1,000 messages", now / then, "×", GOAL, note=note))


def _read(client: Client, address: str) -> None:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)


def _from_few(before: Before, read: Callable[[], None]) -> None:
    large = connections["default"]
    connections["default"] = before.few
    try:
        read()
    finally:
        connections["default"] = large
