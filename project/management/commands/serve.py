"""`manage.py serve`: everything between a fresh clone and a page in the browser."""

from __future__ import annotations

import os
import socket
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from project.accounts.links import HOURS, create_link
from project.server.collectstatic import collect_when_changed
from project.server.first_start import first_staff_user, listening_socket
from project.server.preflight import check_database


class Command(BaseCommand):
    help = "Bring the database up to date, print a one-time sign-in link and serve (HOST, PORT)."
    requires_migrations_checks = False

    def handle(self, *args: Any, **options: Any) -> None:
        os.umask(0o077)  # what we write, the database first of all, is nobody else's to read
        listener = listening_socket(settings.HOST, settings.PORT)
        check_database()
        call_command("migrate", interactive=False, verbosity=0)
        collect_when_changed()
        user = first_staff_user()
        self.stdout.write(f"Parley runs at {settings.PARLEY_URL}/ (stop it with Ctrl+C)")
        self.stdout.write(f"Sign in as {user.username}, once and within {HOURS} hours: {create_link(user)}")
        self.stdout.flush()
        make_server(listener).run()


def make_server(listener: socket.socket, *, handles_signals: bool = True) -> Any:
    """The server of `make run`. The browser tests use it in a thread, where no signals can be handled."""
    # Only here: importing Daphne installs its reactor, which nothing but a server should do.
    from project.server.daphne import Server  # isort: skip

    from project.asgi import application

    # No header that names the server, no access log: it would show one-time links.
    # A call whose caller has left is drained for as long as the settings say; Daphne would end it after ten seconds.
    return Server(
        application,
        endpoints=[endpoint_of(listener)],
        signal_handlers=handles_signals,
        server_name="Parley",
        application_close_timeout=int(settings.PARLEY_RELAY_DRAIN_SECONDS) + 10,
    )


def endpoint_of(listener: socket.socket) -> str:
    """In Daphne's words. It can take over a socket of IPv4 only; of IPv6 it opens its own in the same place."""
    if listener.family == socket.AF_INET:
        return f"fd:fileno={listener.fileno()}"
    host, port = listener.getsockname()[:2]
    listener.close()
    return f"tcp6:port={port}:interface={host.replace(':', chr(92) + ':')}"
