"""Who asks: a program with its key, or somebody who is signed in in a browser.

A key is sent on purpose, so it needs no protection from foreign pages; a cookie is sent by the browser whoever asks, so
what changes something needs a CSRF token. A key goes first: who sends one wants to be it.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from history.access import keys
from history.access.key_cache import ApiKeyError, ScopeMissing, has_scope
from history.api.errors import KeyRefused, PermissionRefused
from history.models import ApiKey

BEARER = "bearer "


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer parley_…` or `x-api-key`. The user is the key's owner, `auth` the key."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiKey] | None:
        raw = key_in(request)
        if not raw:
            return None
        try:
            api_key = keys.authenticate(raw)
        except ApiKeyError as error:
            raise KeyRefused(error) from error
        return api_key.owner, api_key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="Parley"'


class CookieAuthentication(SessionAuthentication):
    """Django's own, with a refusal in our form."""

    def enforce_csrf(self, request: Any) -> None:
        try:
            super().enforce_csrf(request)
        except Exception as error:
            raise PermissionRefused(str(error), "csrf") from error


class MayAsk(BasePermission):
    """Somebody known; and a key must have the scope that the view names for the method."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user.is_authenticated:
            return False
        scope = view.scopes.get("GET" if request.method == "HEAD" else request.method)
        if scope and isinstance(request.auth, ApiKey) and not has_scope(request.auth, scope):
            words = f"The API key {request.auth.prefix} lacks the scope '{scope}': use a key that has it."
            raise KeyRefused(ScopeMissing(words))
        return True


def key_in(request: Request) -> str:
    given = request.headers.get("Authorization", "")
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else request.headers.get("x-api-key", "")
