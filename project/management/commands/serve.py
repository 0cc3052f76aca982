"""`manage.py serve`: migrate, collect static files, print a sign-in link and serve."""

import os
import socket
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.accounts.links import HOURS, create_link
from project.accounts.models import User
from project.config.installation import command_line, start_command
from project.server.readiness import SEVERAL_NEED_REDIS, check_database
from project.server.static_files import collect_when_changed


class Command(BaseCommand):
    help = "Migrate the database, print a one-time sign-in link and start the server on HOST and PORT."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--workers", type=int, default=1, metavar="N", help="number of web processes; several need REDIS_URL (1)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        workers: int = options["workers"]
        if workers < 1:
            raise CommandError("--workers must be at least 1.")
        if workers > 1 and not settings.REDIS_URL:
            raise CommandError(SEVERAL_NEED_REDIS)
        os.umask(0o077)  # the database and other files are readable for this user only
        listener = listening_socket(settings.HOST, settings.PORT)
        check_database()
        call_command("migrate", interactive=False, verbosity=0)
        collect_when_changed()
        user = first_staff_user()
        self.stdout.write(f"Parley runs at {settings.PARLEY_URL}/ (stop it with Ctrl+C)")
        self.stdout.write(f"Sign in as {user.username}, once and within {HOURS} hours: {create_link(user)}")
        self.stdout.flush()
        if workers > 1:
            serve_by_processes(listener, workers)
        else:
            make_server(listener).run()


def serve_by_processes(listener: socket.socket, workers: int) -> None:
    """Serve by several processes of Uvicorn until SIGTERM. Parsing in Python is 17 % of a relayed call's CPU."""
    # Only here: one process runs Daphne and need not load another server.
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    config = uvicorn.Config(
        "project.asgi:application", workers=workers, loop="uvloop", http="httptools", log_level="warning"
    )
    Multiprocess(config, sockets=[listener]).run()


def first_staff_user() -> User:
    """The oldest active staff account. The first start creates the superuser `admin`, who signs in by link."""
    found = User.objects.filter(is_staff=True, is_active=True).order_by("pk").first()
    if found:
        return found
    user, created = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    if not created:
        problem = "No staff member can sign in: the user “admin” is not active staff."
        raise CommandError(f"{problem} Create another one: {command_line('createsuperuser')}")
    user.set_unusable_password()
    user.save()
    return user


def listening_socket(host: str, port: int) -> socket.socket:
    """Bind before the server starts, so that a port in use gives a clear error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise CommandError(
            f"Cannot listen on {host}:{port} ({error.strerror or error}). Another program may use this port."
            f" Choose another one, for example: PORT={port + 1} {start_command()}"
        ) from error
    listener.setblocking(False)
    return listener


def make_server(listener: socket.socket, *, handles_signals: bool = True) -> Any:
    """The server of `make run`. Browser tests run it in a thread, which cannot handle signals."""
    # Only here: importing Daphne installs its reactor, which only a server should do.
    from project.server.daphne import Server  # isort: skip

    from project.asgi import application

    # No access log, because it would show one-time links. A call whose client has left is drained for the time of the
    # settings; Daphne would end it after ten seconds.
    return Server(
        application,
        endpoints=[endpoint_of(listener)],
        signal_handlers=handles_signals,
        server_name="Parley",
        application_close_timeout=int(settings.PARLEY_RELAY_DRAIN_SECONDS) + 10,
    )


def endpoint_of(listener: socket.socket) -> str:
    """The description of the listener for Daphne. It adopts sockets of IPv4 only, and opens its own for IPv6."""
    if listener.family == socket.AF_INET:
        return f"fd:fileno={listener.fileno()}"
    host, port = listener.getsockname()[:2]
    listener.close()
    return f"tcp6:port={port}:interface={host.replace(':', chr(92) + ':')}"
