"""/charts/: a picture of the record. Range and grouping are in the address; every chart has a table of its numbers."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from history.access.permissions import Purpose, can_access_others
from history.pages.charts import ChartQuery, picture_for


@login_required
@never_cache
@require_safe
def charts(request: HttpRequest) -> HttpResponse:
    sees_others = can_access_others(request.user, Purpose.LIST)
    asked = ChartQuery.of(request.GET, sees_others=sees_others)
    context = {
        "picture": picture_for(request.user, asked),
        "ranges": [(word, asked.link(range=name), asked.range == name) for name, word in _ranges()],
        "groupings": [(word, asked.link(by=name), asked.by == name) for name, word in _groupings(sees_others)],
        "owners": [
            (_("everybody"), asked.link(mine=False), not asked.mine),
            (_("mine"), asked.link(mine=True), asked.mine),
        ]
        if sees_others
        else [],
    }
    return render(request, "history/charts/page.html", context)


def _ranges() -> list[tuple[str, str]]:
    return [
        ("7d", _("7 days")),
        ("30d", _("30 days")),
        ("90d", _("90 days")),
        ("1y", _("a year")),
        ("all", _("everything")),
    ]


def _groupings(sees_others: bool) -> list[tuple[str, str]]:
    words = [("", _("together")), ("model", _("by model")), ("key", _("by key")), ("agent", _("by agent"))]
    words += [("source", _("by source"))]
    return [*words, ("owner", _("by owner"))] if sees_others else words
