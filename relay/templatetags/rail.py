"""What the templates of the rail ask for. The rail reads its own first page, so any page can include it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import pgettext

from history.models import Session
from history.origins import Origin, origin_of
from history.search import Hit
from relay.views.asked import Asked, Rail, rail_of

register = template.Library()


@register.simple_tag(takes_context=True)
def read_rail(context: dict[str, Any]) -> Rail:
    """The first page of the person's list, or what `?q=` finds; the session of the page is marked."""
    session = context.get("session")
    asked = Asked.of_page(context["request"], current=session.pk if isinstance(session, Session) else None)
    return rail_of(context["request"].user, asked)


@register.filter
def origin(session: Session) -> Origin:
    return origin_of(session)


@register.filter
def short_time(moment: datetime) -> str:
    """Under the heading of its day: the time within a week, the day within a year."""
    return _short(moment, within_a_week="TIME_FORMAT")


@register.filter
def short_day(moment: datetime) -> str:
    """Under no heading: the time today, the weekday within a week, the day within a year."""
    return _short(moment, within_a_week="D")


def _short(moment: datetime, *, within_a_week: str) -> str:
    local, now = timezone.localtime(moment), timezone.localtime()
    days = (now.date() - local.date()).days
    if days < 7:
        return date_format(local, "TIME_FORMAT" if days < 1 else within_a_week)
    if local.year == now.year:
        return date_format(local, pgettext("a day without its year, in letters for dates of Django", "j M"))
    return date_format(local, "SHORT_DATE_FORMAT")


@register.simple_tag
def hit_link(hit: Hit, words: str) -> str:
    """The entry with the page around it; a search stays in the rail."""
    query = urlencode({"at": hit.seq} | ({"q": words} if words else {}))
    return f"{Session(pk=hit.session_id).get_absolute_url()}?{query}#m{hit.seq}"
