"""Shows every page in the language and the time zone that its reader chose, and to nobody else."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.utils import timezone, translation


class PreferencesMiddleware:
    """Stands after LocaleMiddleware, whose guess from the browser holds for everybody who chose nothing."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        user = request.user
        if user.is_authenticated and user.language:
            translation.activate(user.language)
            request.LANGUAGE_CODE = translation.get_language()
        # An override ends with the request; activating would leave the zone on the thread for the next reader.
        with timezone.override(user.time_zone or None if user.is_authenticated else None):
            response = self.get_response(request)
        if user.is_authenticated:
            # A page is for who asked for it: no cache shows it to anybody else, or again without asking.
            response.setdefault("Cache-Control", "private, no-cache")
        return response
