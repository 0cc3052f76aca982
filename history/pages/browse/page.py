"""Everything that /history/ shows to one viewer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, can_access_others
from history.models import AuditEvent, Session
from history.pages.browse.facets import Facet, Option, Spread, facets_for, keys_for
from history.pages.browse.query import BrowseQuery
from history.pages.browse.results import Found, find, number, spread

UNDO = timedelta(seconds=30)
SLOW_NETWORK = timedelta(seconds=5)  # who presses Undo in the last second is heard
LAST_EVENTS = 1_000


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of time to choose with one press."""

    label: str
    link: str
    is_picked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Browse:
    asked: BrowseQuery
    found: Found
    spread: Spread | None = None
    facets: tuple[Facet, ...] = ()
    keys: tuple[Option, ...] = ()
    ranges: tuple[Range, ...] = ()
    deleted: tuple[Session, ...] = ()
    sees_others: bool = False
    reads_others: bool = False
    deletes_others: bool = False

    @property
    def more(self) -> str:
        return self.asked.link(before=self.found.next_before) if self.found.next_before else ""


def browse(viewer: Any, asked: BrowseQuery) -> Browse:
    """The whole page."""
    sees_others = can_access_others(viewer, Purpose.LIST)
    counted = spread(viewer, asked)
    facets = facets_for(asked, counted, count=partial(spread, viewer), sees_others=sees_others)
    by_key = spread(viewer, asked.without("key")) if asked.key else counted
    return Browse(
        asked=asked,
        found=find(viewer, asked),
        spread=counted,
        facets=facets,
        keys=keys_for(viewer, by_key, asked, sees_others=sees_others),
        ranges=ranges(asked),
        deleted=tuple(just_deleted_by(viewer)),
        sees_others=sees_others,
        reads_others=can_access_others(viewer, Purpose.READ),
        deletes_others=can_access_others(viewer, Purpose.DELETE),
    )


def browse_on(viewer: Any, asked: BrowseQuery) -> Browse:
    """The rows that come next, and nothing else."""
    return Browse(
        asked=asked,
        found=find(viewer, asked),
        sees_others=can_access_others(viewer, Purpose.LIST),
        reads_others=can_access_others(viewer, Purpose.READ),
        deletes_others=can_access_others(viewer, Purpose.DELETE),
    )


def browse_again(viewer: Any, asked: BrowseQuery) -> Browse:
    """The rows as they are now and how many there are, beside filters that stay as they are."""
    deleted = tuple(just_deleted_by(viewer))
    return replace(browse_on(viewer, asked), spread=number(viewer, asked), deleted=deleted)


def ranges(asked: BrowseQuery) -> tuple[Range, ...]:
    today = timezone.localdate()
    choices: list[tuple[str, date | None]] = [
        (_("any time"), None),
        (_("today"), today),
        (_("7 days"), today - timedelta(days=6)),
        (_("30 days"), today - timedelta(days=29)),
    ]
    return tuple(
        Range(label, asked.link(since=since, until=None), asked.since == since and asked.until is None)
        for label, since in choices
    )


def just_deleted_by(person: Any) -> QuerySet[Session]:
    """What this person has deleted in the last seconds, their own or somebody else's, and may still want back."""
    since = timezone.now() - UNDO - SLOW_NETWORK
    newest = AuditEvent.objects.order_by("-seq").values_list("seq", flat=True).first() or 0
    hidden = AuditEvent.objects.filter(seq__gt=newest - LAST_EVENTS, action="hide", actor=person.pk, at__gt=since)
    ids = [pk for pk in hidden.values_list("session", flat=True) if pk]
    return Session.objects.filter(pk__in=ids, hidden_at__gt=since).order_by("-hidden_at")
