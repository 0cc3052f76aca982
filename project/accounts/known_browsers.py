"""Browsers in which somebody has signed in before: strangers who guess that name elsewhere do not keep them out.

The browser holds a signed cookie with a keyed hash of the name. It opens nothing: a password is still asked for, and
still counted per address.
"""

from datetime import timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare

from project.accounts.failures import hash_of

COOKIE = "parley_known"
REMEMBERED = timedelta(days=365)


def remember_browser(response: HttpResponse, *, name: str) -> None:
    response.set_signed_cookie(
        COOKIE,
        hash_of(name),
        salt=COOKIE,
        max_age=REMEMBERED,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def is_known_browser(request: HttpRequest, *, name: str) -> bool:
    kept = request.get_signed_cookie(COOKIE, default="", salt=COOKIE, max_age=REMEMBERED)
    return constant_time_compare(kept or "", hash_of(name))
