"""Template filters of lists: sources of sessions, short times, links to hits and numbers of charts."""

from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import NamedTuple
from urllib.parse import urlencode

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _, pgettext

from history.clients import MARKS
from history.models import Message, Session
from history.search import Hit
from history.templatetags.transcripts import dollars, label_of, long_duration, thousands

register = template.Library()


def _short(moment: datetime, *, within_a_week: str) -> str:
    """The time today, this format within a week, the day within a year."""
    local, now = timezone.localtime(moment), timezone.localtime()
    days = (now.date() - local.date()).days
    if days < 7:
        return date_format(local, "TIME_FORMAT" if days < 1 else within_a_week)
    if local.year == now.year:
        return date_format(local, pgettext("a day without its year, in letters for dates of Django", "j M"))
    return date_format(local, "SHORT_DATE_FORMAT")


short_time = register.filter("short_time", partial(_short, within_a_week="TIME_FORMAT"))  # below headings of days
short_day = register.filter("short_day", partial(_short, within_a_week="D"))
register.filter("role_label", partial(label_of, dict(Message.Role.choices)))


@register.simple_tag
def hit_link(hit: Hit, words: str) -> str:
    """The entry with the page around it; a search stays in the sidebar."""
    query = urlencode({"at": hit.seq} | ({"q": words} if words else {}))
    return f"{Session(pk=hit.session_id).get_absolute_url()}?{query}#m{hit.seq}"


@register.filter
def short_number(number: int) -> str:
    """Large counts to three digits, as in 18.6 M."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}\u202f{letter}"
    return str(number)


@register.filter
def chart_value(number: float | None, unit: str) -> str:
    if number is None:
        return "–"
    if unit == "seconds":
        return long_duration(number)
    if unit == "dollars":
        return dollars(Decimal(str(number)))
    return thousands(round(number)) if unit == "count" else short_number(round(number))


class Origin(NamedTuple):
    """Where a session comes from: `mark` is a symbol, `name` its text."""

    mark: str
    name: str


@register.filter
def origin(session: Session) -> Origin:
    if session.source == Session.Source.RELAY:
        return Origin(MARKS.get(session.client.lower(), "API"), session.client or _("API"))
    if session.source == Session.Source.IMPORT:
        name = _("Import from %(client)s") % {"client": session.client} if session.client else _("Import")
        return Origin("IM", name)
    if session.source == Session.Source.NOTEBOOK:
        return Origin("NB", _("Notebook"))
    return Origin("", _("Chat"))  # the ordinary case has no mark
