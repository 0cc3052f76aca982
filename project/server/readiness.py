"""Checks before serving: the database answers, and its migrations are applied."""

import asyncio
import sys
from itertools import pairwise
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.migrations.executor import MigrationExecutor

from project.config.env import process_variable, shown
from project.config.installation import command_line


def database_problem() -> str:
    """The error of the database on one line. Empty if the database can be used."""
    connection = connections[DEFAULT_DB_ALIAS]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error as error:
        connection.close()
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def unapplied_migrations() -> list[str]:
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]


def check_database() -> None:
    problem = database_problem()
    if problem:
        raise CommandError(
            f"The database {shown('DATABASE_URL', settings.DATABASE_URL)} cannot be used ({problem})."
            " Start it, or correct DATABASE_URL."
        )


def check_migrations() -> None:
    if unapplied_migrations():
        raise CommandError(f"The database needs migrations. Run: {command_line('migrate')}")


SEVERAL_NEED_REDIS = "Several web processes need Redis. Set REDIS_URL, or start the server with one worker."


GRANIAN_NEEDS_ASYNCIO = (
    "Start Granian with --loop asyncio. Under uvloop, answers in progress get no time to end at SIGTERM."
)


def start_problem(receive: Any) -> str:
    """The problem that prevents a start, or ''. `receive` is the lifespan's. Only Redis carries changes to others."""
    if not settings.REDIS_URL and _count_workers(receive) > 1:
        return SEVERAL_NEED_REDIS
    # uvloop does not tell which handlers of signals it has, and Granian leaves them to the loop.
    is_hidden = type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    return GRANIAN_NEEDS_ASYNCIO if is_hidden and _server_of(receive) == "granian" else ""


def _server_of(receive: Any) -> str:
    return type(getattr(receive, "__self__", None)).__module__.partition(".")[0]


def _count_workers(receive: Any) -> int:
    """Uvicorn's from its configuration; Granian's, which keeps its own to itself, from where it reads it."""
    server = _server_of(receive)
    if server == "uvicorn":
        return int(receive.__self__.config.workers)
    if server != "granian":
        return 1
    words = [part for word in sys.argv for part in word.split("=", 1)]
    given = dict(pairwise(words)).get("--workers") or process_variable("GRANIAN_WORKERS")
    return int(given) if given.isdecimal() else 1
