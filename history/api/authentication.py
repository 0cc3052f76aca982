"""Authentication and rate limit of REST requests: API keys of programs, cookies of signed-in users.

Programs send a key on purpose, so it needs no protection from other sites. A browser sends its cookie with the requests
of any site, so changes need a CSRF token. A request with both is authenticated by its key.

Requests are counted per clock minute in the shared cache by an atomic increment, so concurrent requests all count.
With Redis all processes count together. Without it, or while it is away, each process counts for itself.
"""

import logging
import threading
import time
from collections import Counter

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.cache import cache
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView

from history.access import keys
from history.access.key_cache import ApiKeyError, ScopeMissing, bearer_secret, has_scope
from history.api.errors import KeyRefused, PermissionRefused
from history.models import ApiKey

logger = logging.getLogger(__name__)

MINUTE = 60
_counts: Counter[str] = Counter()  # of the current minute, while the shared cache is away
_lock = threading.Lock()


class KeyAuthentication(BaseAuthentication):
    """`Authorization: Bearer parley_…` or `x-api-key`. The user is the key's owner, `auth` the key."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiKey] | None:
        secret = bearer_secret(request.headers.get("Authorization", "")) or request.headers.get("x-api-key", "")
        if not secret:
            return None
        try:
            api_key = keys.authenticate(secret)
        except ApiKeyError as error:
            raise KeyRefused(error) from error
        return api_key.owner, api_key

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="Parley"'


class CookieAuthentication(SessionAuthentication):
    """Django's own, with the API's form of errors."""

    def enforce_csrf(self, request: Request) -> None:
        try:
            super().enforce_csrf(request)
        except Exception as error:
            raise PermissionRefused(str(error), "csrf") from error


class HasScope(BasePermission):
    """A user or a key; a key must have the scope that the view declares for the method."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        if not request.user.is_authenticated:
            return False
        scopes: dict[str | None, str] = getattr(view, "scopes", {})
        scope = scopes.get("GET" if request.method == "HEAD" else request.method)
        if scope and isinstance(request.auth, ApiKey) and not has_scope(request.auth, scope):
            text = f"The API key {request.auth.prefix} lacks the scope '{scope}'. Use a key with this scope."
            raise KeyRefused(ScopeMissing(text))
        return True


class PerMinute(BaseThrottle):
    def allow_request(self, request: Request, view: APIView) -> bool:
        key = request.auth
        return is_within_limit(f"key-{key.pk}" if isinstance(key, ApiKey) else f"user-{request.user.pk}")

    def wait(self) -> float:
        return MINUTE - time.time() % MINUTE


def is_within_limit(caller: str) -> bool:
    """Count one more request of this caller."""
    most = settings.PARLEY_API_REQUESTS_PER_MINUTE
    return not most or _count(caller) <= most


def _count(caller: str) -> int:
    minute = f":{int(time.time() // MINUTE)}"
    name = f"api-requests:{caller}{minute}"
    try:
        cache.add(name, 0, timeout=2 * MINUTE)
        return cache.incr(name)
    except ValueError:  # the cache was emptied in between
        return 1
    except Exception as error:  # noqa: BLE001 - each cache backend has its own errors
        logger.warning("The shared cache does not count requests (%s); this process does.", type(error).__name__)
    with _lock:
        for old in [one for one in _counts if not one.endswith(minute)]:
            del _counts[old]
        _counts[name] += 1
        return _counts[name]
