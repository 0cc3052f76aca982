"""Language and time zone of a viewer, for code without a request."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils import timezone, translation
from django.utils.translation import get_supported_language_variant
from django.utils.translation.trans_real import parse_accept_lang_header


@dataclass(frozen=True, slots=True)
class ViewerLocale:
    language: str
    time_zone: str = ""

    @contextmanager
    def reading(self) -> Iterator[None]:
        with translation.override(self.language), timezone.override(self.time_zone or None):
            yield


def reader_of(user: Any, scope: Mapping[str, Any]) -> ViewerLocale:
    """The settings of the user, else the language of the browser."""
    return ViewerLocale(getattr(user, "language", "") or _accepted_language(scope), getattr(user, "time_zone", ""))


def _accepted_language(scope: Mapping[str, Any]) -> str:
    headers = dict(scope.get("headers", ()))
    accepted = headers.get(b"accept-language", b"").decode("latin-1")
    for language, _ in parse_accept_lang_header(accepted):
        try:
            return get_supported_language_variant(language)
        except LookupError:
            continue
    return settings.LANGUAGE_CODE
