"""Failed answers in words for their reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import template

from history.entries import ModelOutput
from history.models import Session
from relay.chat import error_texts
from relay.providers.advice import Advice, advise, error_from
from relay.providers.registry import router

register = template.Library()

PROVIDER_ENDS = ("upstream_error", "upstream_cut", "upstream_unreadable")


@register.simple_tag
def advice_for(reader: Any, session: Session, entry: ModelOutput) -> Advice | None:
    """What the reader can do about an answer of ours that its provider failed.

    None for other ends, and for calls of programs: their client got the provider's own text already.
    """
    failure = entry.metadata.get("failure")
    is_ours = session.source == Session.Source.CHAT or failure
    if not is_ours or entry.status == "complete" or entry.end_reason not in PROVIDER_ENDS:
        return None
    facts = (
        failure if isinstance(failure, Mapping) else {"network": "cut" if entry.end_reason == "upstream_cut" else ""}
    )
    error = error_from(facts, message=entry.error, provider=entry.provider)
    is_staff = bool(getattr(reader, "is_staff", False))
    return advise(error, is_staff=is_staff, variable=_key_variable(entry.provider) if is_staff else "")


def _key_variable(provider: str) -> str:
    return next((standing.key_variable for standing in router().providers() if standing.name == provider), "")


@register.filter
def queue_error(code: str) -> str:
    return error_texts.of_queue_error(code)
