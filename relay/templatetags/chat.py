"""Template tags of the chat: sidebar, links to pages and actions of this app, advice about failed answers."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django import template
from django.urls import get_script_prefix, reverse

from history.entries import ModelOutput
from history.models import Message, Session
from relay.chat import error_texts
from relay.pages.sidebar.sessions import SidebarQuery, load_sidebar, words_of
from relay.providers.error_advice import ErrorAdvice, describe_error, error_from
from relay.providers.registry import router

register = template.Library()
register.filter("queue_error", error_texts.queue_error_text)

BULK_ACTIONS = ("delete", "undelete", "archive", "unarchive")

PROVIDER_ENDS = ("upstream_error", "upstream_cut", "upstream_unreadable")


@register.simple_tag(takes_context=True)
def read_sidebar(context: dict[str, Any]) -> dict[str, Any]:
    """The first page of the user's list, or the results of `?q=`. Any page can include the sidebar."""
    session = context.get("session")
    current = session.pk if isinstance(session, Session) else None
    # `before` in the URL of a page belongs to its transcript.
    query = SidebarQuery(words=words_of(context["request"].GET), current=current)
    return load_sidebar(context["request"].user, query)


# Templates of `history` get the URLs of this app from the tags below.
@register.simple_tag
def bulk_action_urls() -> dict[str, str]:
    return _bulk_action_urls(get_script_prefix())


@lru_cache(maxsize=10)
def _bulk_action_urls(_prefix: str) -> dict[str, str]:
    return {action: reverse(f"relay:browse_{action}") for action in BULK_ACTIONS} | {"trash": reverse("relay:deleted")}


@register.simple_tag
def entry_action_urls(session: Session, message: Message) -> dict[str, str]:
    return {action: reverse(f"relay:{action}", args=[session.pk, message.seq]) for action in ("edit", "fork")}


@register.simple_tag
def attachment_url(session: Session, sha256: str, share_token: str = "") -> str:
    if not sha256:
        return ""
    if share_token:
        return reverse("relay:shared_attachment", args=[share_token, sha256])
    return reverse("relay:attachment", args=[session.pk, sha256])


@register.simple_tag
def providers_url() -> str:
    return reverse("relay:providers")


@register.simple_tag
def advice_for(reader: Any, session: Session, entry: ModelOutput) -> ErrorAdvice | None:
    """Advice about an answer of ours that its provider failed. Clients of programs got the provider's own text."""
    failure = entry.metadata.get("failure")
    is_ours = session.source == Session.Source.CHAT or failure
    if not is_ours or entry.status == "complete" or entry.end_reason not in PROVIDER_ENDS:
        return None
    cut = {"network": "cut" if entry.end_reason == "upstream_cut" else ""}
    facts = failure if isinstance(failure, Mapping) else cut
    error = error_from(facts, message=entry.error, provider=entry.provider)
    is_staff = bool(getattr(reader, "is_staff", False))
    endpoints = [status.provider.endpoint for status in router().providers()] if is_staff else []
    named = (endpoint.key_variable for endpoint in endpoints if endpoint.name == entry.provider)
    return describe_error(error, is_staff=is_staff, variable=next(named, ""))
