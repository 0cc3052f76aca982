"""What a start finds or makes: somebody who may come in, and a place to listen at."""

from __future__ import annotations

import socket

from django.core.management.base import CommandError

from project.accounts.models import User


def first_staff_user() -> User:
    """The one who has been here longest; on the first start a superuser `admin`, who comes in by link."""
    found = User.objects.filter(is_staff=True, is_active=True).order_by("pk").first()
    if found:
        return found
    user, created = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    if not created:
        raise CommandError(
            "Nobody of the staff can sign in: the user “admin” is no active staff."
            " Make another with: manage.py createsuperuser"
        )
    user.set_unusable_password()
    user.save()
    return user


def listening_socket(host: str, port: int) -> socket.socket:
    """Bound here and handed to the server, so that a port that is taken is our own clear error."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise CommandError(
            f"Cannot listen on {host}:{port} ({error.strerror or error}). Is something else running there?"
            f" Choose another port, for example: PORT={port + 1} make run"
        ) from error
    listener.setblocking(False)
    return listener
