"""A backend of sign-in that counts how many passwords were really looked at, and takes its time over each."""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from project.accounts.models import User

LOOKED_AT: list[str] = []


class CountingBackend(ModelBackend):
    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **more: Any
    ) -> User | None:
        LOOKED_AT.append(str(username))
        time.sleep(0.2)  # long enough that all who were let through are here at once
        return super().authenticate(request, username, password, **more)
