"""History and charts at size: whole pages, with their templates, as staff who see everything and as large owners.

The baseline is the same page of a user with 1,000 messages, in as many sessions as fill a page.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
from django.test import RequestFactory
from django_htmx.middleware import HtmxDetails

from bench.load import Loaded, Talk, fill, vocabulary
from bench.measure import Line, Table, in_turns
from history.models import Message, Session
from history.pages import charts, session as session_pages
from history.pages.browse import views as browse_views
from history.record import daily_counts

GOAL = 3.0
WORDS = vocabulary()
PAGES = (
    ("history, the list", browse_views.history, "/history/"),
    ("history, by model", browse_views.history, "/history/?model=gpt"),
    ("history, by a source without sessions", browse_views.history, "/history/?source=import"),
    ("history, with errors, of a month", browse_views.history, "/history/?error=1&since=2026-03-01&until=2026-03-31"),
    ("history, two words", browse_views.history, f"/history/?q={WORDS[2]}+{WORDS[30]}"),
    ("history, by tool", browse_views.history, "/history/?tool=sys_monitor"),
    ("charts of a year by model", charts.charts, "/charts/?range=1y&by=model"),
    ("charts of everything", charts.charts, "/charts/?range=all"),
)


def measure(loaded: Loaded, table: Table, *, rounds: int) -> None:
    thousand = owner_of_a_thousand()
    counting(table)
    staff = get_user_model().objects.create_superuser("bench-pages")
    for name, view, address in PAGES:
        for who, viewer in (("staff", staff), ("large owner", loaded.large_owner)):
            large, small = in_turns(
                _page(view, address, viewer), _page(view, address, thousand), rounds=max(5, rounds // 4)
            )
            note = f"{large * 1e3:.1f} ms against {small * 1e3:.1f} ms"
            table.add(Line(f"{name}: {who} against an owner of 1,000", large / small, "×", GOAL, note=note))
    timelines(loaded, table, rounds)


def owner_of_a_thousand() -> Any:
    owner = get_user_model().objects.create_user("thousand")
    fill([owner] * 40, Talk(seed=9), 25)
    return owner


def counting(table: Table) -> None:
    begin = time.perf_counter()
    days = daily_counts.rebuild()
    taken = time.perf_counter() - begin
    messages = Message.objects.count()
    table.add(Line("counting every day anew", messages / taken, "/s", note=f"{days} days in {taken:.1f} s"))


def timelines(loaded: Loaded, table: Table, rounds: int) -> None:
    alike = Session.objects.filter(message_count__gte=40, message_count__lt=100).first() or loaded.short
    long, short = in_turns(
        _page(session_pages.timeline, "/", loaded.large_owner, session_id=loaded.long.pk),
        _page(session_pages.timeline, "/", alike.owner, session_id=alike.pk),
        rounds=max(5, rounds // 4),
    )
    note = f"{long * 1e3:.1f} ms against {short * 1e3:.1f} ms"
    table.add(Line("timeline of 10,000 messages against some 50", long / short, "×", GOAL, note=note))


def _page(view: Any, address: str, viewer: Any, **named: Any) -> Callable[[], object]:
    def read() -> object:
        request = RequestFactory().get(address)
        request.user = viewer
        request.session = {}  # type: ignore[assignment]
        request.htmx = HtmxDetails(request)  # type: ignore[attr-defined]  # as its middleware sets it
        response = view(request, **named)
        assert response.status_code == 200
        return response

    return read
