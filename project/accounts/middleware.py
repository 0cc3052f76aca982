"""Language, time zone and sign-in redirects of the user who sends a request."""

from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import resolve_url
from django.utils import timezone, translation
from django.utils.deprecation import MiddlewareMixin

from history.http import is_own_url
from project.accounts.models import User


class PreferencesMiddleware:
    """Language and time zone that the user chose. It follows LocaleMiddleware, which decides for the other users."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        user = request.user
        if user.is_authenticated and user.language:
            translation.activate(user.language)
            request.LANGUAGE_CODE = translation.get_language()
        request.auser = partial(_resolved, user)  # async views would read the same row again
        # An override ends with the request; activating would leave the zone on the thread for the next reader.
        with timezone.override(user.time_zone or None if user.is_authenticated else None):
            response = self.get_response(request)
        if user.is_authenticated:
            # No cache may show the page to another user, or again without validation.
            response.setdefault("Cache-Control", "private, no-cache")
        return response


async def _resolved(user: User | AnonymousUser) -> User | AnonymousUser:
    return user


class SignInReturnMiddleware(MiddlewareMixin):
    """After a form was sent signed out, sign in leads back to the page of the form: its own address takes no GET."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        if request.method in ("GET", "HEAD") or response.status_code != 302:
            return response
        if urlsplit(response.headers["Location"]).path != resolve_url(settings.LOGIN_URL):
            return response
        page = request.headers.get("Referer", "")
        if not is_own_url(request, page):
            return redirect_to_login("/")
        parts = urlsplit(page)
        return redirect_to_login(f"{parts.path}?{parts.query}" if parts.query else parts.path)
