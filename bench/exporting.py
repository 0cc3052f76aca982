"""Everything out and in again: memory stays flat, also while Daphne sends it to a slow client; the bytes stay the same.

The restore goes into a second database, in a process of its own: `python -m bench.exporting FILE` there.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench.measure import Line, Table, memory_growth

FLAT = 64  # MiB


def measure(table: Table, folder: Path) -> None:
    file = folder / "everything.jsonl"
    hashed, messages = _export(table, file)
    _download(table, hashed)
    _restore(table, file, folder, messages)
    file.unlink()


def _export(table: Table, file: Path) -> tuple[str, int]:
    from history.exporting import Selection, begin
    from history.models import Message

    messages, hashed = Message.objects.count(), sha256()
    with memory_growth() as growth, file.open("wb") as out:
        start = time.perf_counter()
        for piece in begin(None, Selection(), "jsonl").pieces():
            hashed.update(piece)
            out.write(piece)
        taken = time.perf_counter() - start
    note = f"{messages / taken:,.0f}/s, {file.stat().st_size / 1e6:,.0f} MB"
    table.add(Line("export everything as jsonl: memory above the start", growth[0], "MiB", FLAT, note=note))
    return hashed.hexdigest(), messages


def _download(table: Table, expected: str) -> None:
    """By a reader who pauses: what they have not taken yet must wait in the database."""
    cookie = _signed_in()
    with _daphne() as (port, pid):
        _fetch(port, cookie, "format=jsonl&session=x")  # everything is imported and warm
        start_at = _memory(pid, "VmRSS")
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        begin = time.perf_counter()
        hashed, size = _fetch(port, cookie, "format=jsonl&all=1&reason=measuring", pause=2)
        taken = time.perf_counter() - begin
        grown = _memory(pid, "VmHWM") - start_at
    table.add(
        Line(
            "download of it under Daphne: memory above the start",
            grown,
            "MiB",
            FLAT,
            note=f"{size / taken / 1e6:.1f} MB/s",
        )
    )
    table.add(Line("download of it: other bytes than the export", float(hashed != expected), "", 0))


def _signed_in() -> str:
    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore

    user: Any = get_user_model().objects.create_superuser(f"bench-export-{time.time_ns()}")
    session = SessionStore()
    session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session.create()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


@contextmanager
def _daphne() -> Iterator[tuple[int, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-m", "daphne", "--bind", "127.0.0.1", "--port", str(port), "--access-log", os.devnull]
    environment = os.environ | {"PARLEY_BACKGROUND": "false", "ALLOWED_HOSTS": "127.0.0.1"}
    server = subprocess.Popen(
        [sys.executable, *words, "project.asgi:application"], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield port, server.pid
    finally:
        server.terminate()
        server.wait(30)


def _fetch(port: int, cookie: str, form: str, *, pause: float = 0) -> tuple[str, int]:
    """By the page's own form: a reason counts only from there."""
    from django.conf import settings

    connection, token = HTTPConnection("127.0.0.1", port, timeout=600), "b" * 32
    headers = {
        "Cookie": f"{cookie}; {settings.CSRF_COOKIE_NAME}={token}",
        "X-CSRFToken": token,
        "Content-Type": "application/x-www-form-urlencoded",
    }
    connection.request("POST", "/history/export/", body=form, headers=headers)
    response, hashed, size = connection.getresponse(), sha256(), 0
    while piece := response.read(1_000_000):
        hashed.update(piece)
        size += len(piece)
        time.sleep(pause if size <= 2_000_000 else 0)
    connection.close()
    return hashed.hexdigest(), size


def _memory(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _restore(table: Table, file: Path, folder: Path, messages: int) -> None:
    with _another_database(folder) as url:
        told = subprocess.run(
            [sys.executable, "-m", "bench.exporting", str(file)],
            env=os.environ | {"DATABASE_URL": url},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    grown, taken, differs, findings = told.stdout.split()
    rate = f"{messages / float(taken):,.0f}/s"
    table.add(Line("restore all of it: memory above the start", float(grown), "MiB", FLAT, note=rate))
    table.add(Line("export again after the restore: other bytes", float(differs), "", 0))
    table.add(Line("verify after the restore: findings", float(findings), "", 0))


@contextmanager
def _another_database(folder: Path) -> Iterator[str]:
    url = os.environ["DATABASE_URL"]
    if not url.startswith("postgres"):
        yield f"sqlite:///{folder}/restored.sqlite3"
        for path in folder.glob("restored.sqlite3*"):
            path.unlink()
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE restored")
        yield re.sub(r"/\w+(\?|$)", r"/restored\1", url, count=1)
        connection.execute("DROP DATABASE restored WITH (FORCE)")


def restore_here(file: Path) -> None:
    """In a process of its own: lay it down, export it again, verify; prints MiB, seconds, differs, findings."""
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from history import verification
    from history.exporting import Selection, begin
    from history.formats import jsonl

    call_command("migrate", verbosity=0)
    owners = {line.split(b'"owner":"')[1].split(b'"')[0].decode() for line in _sessions_in(file)}
    for name in owners:
        get_user_model().objects.create_user(name)
    with memory_growth() as growth, file.open("rb") as lines:
        start = time.perf_counter()
        for _ in jsonl.restore(lines):
            pass
        taken = time.perf_counter() - start
    written, again = _hash_of(file), sha256()
    for piece in begin(None, Selection(), "jsonl").pieces():
        again.update(piece)
    findings = sum(1 for _ in verification.verify())
    print(growth[0], taken, int(written != again.hexdigest()), findings)


def _sessions_in(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        yield from (line for line in lines if b'"type":"session",' in line)


def _hash_of(file: Path) -> str:
    hashed = sha256()
    with file.open("rb") as content:
        while piece := content.read(1_000_000):
            hashed.update(piece)
    return hashed.hexdigest()


if __name__ == "__main__":
    restore_here(Path(sys.argv[1]))
