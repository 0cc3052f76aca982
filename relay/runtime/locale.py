"""In whose language and time something is shown, where there is no request that would know it."""

from __future__ import annotations

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
    """What the person chose, else what their browser asks for."""
    return ViewerLocale(getattr(user, "language", "") or _asked_for(scope), getattr(user, "time_zone", ""))


def _asked_for(scope: Mapping[str, Any]) -> str:
    headers = dict(scope.get("headers", ()))
    accepted = headers.get(b"accept-language", b"").decode("latin-1")
    for language, _ in parse_accept_lang_header(accepted):
        try:
            return get_supported_language_variant(language)
        except LookupError:
            continue
    return settings.LANGUAGE_CODE
