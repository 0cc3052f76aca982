"""What the templates of lists need: where a session came from, when that was in a word, and where a hit leads."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from urllib.parse import urlencode

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import pgettext

from history.models import Message, Session
from history.search import Hit
from history.sessions.sources import Origin, origin_of
from history.templatetags.reading import dollars, long_duration, thousands

register = template.Library()


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


@register.filter
def role_word(role: str) -> str:
    return str(dict(Message.Role.choices).get(role, role))


@register.filter
def in_short(number: int) -> str:
    """Large counts to three digits: 18.6 M says enough in a list."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}\u202f{letter}"
    return str(number)


@register.filter
def measured(number: float | None, unit: str) -> str:
    """A number of a chart with its unit; a dash where nobody has measured anything."""
    if number is None:
        return "–"
    if unit == "seconds":
        return long_duration(number)
    if unit == "dollars":
        return dollars(Decimal(str(number)))
    return thousands(round(number)) if unit == "count" else in_short(round(number))
