"""Sessions that staff have linked, read as one transcript: to read only, each with its own place to go on."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from history.access.reasons import find_opened
from history.http.htmx import HtmxRequest
from history.models import Session
from history.pages.session_access import number_in, session_or_404
from history.record.selectors import chain_to
from history.transcripts.chains import read_part


@login_required
@require_safe
@vary_on_headers("HX-Request", "HX-Target")
def whole(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    session = session_or_404(request.user, session_id)
    chain = _readable(request, session)
    number = max(1, number_in(request.GET, "part") or 1) - 1
    part = read_part(chain, number=number, after=number_in(request.GET, "after") or 0)
    is_more = bool(request.htmx) and request.htmx.target == "more"
    context = {"session": session, "part": part, "count": len(chain)}
    return render(request, f"history/whole/{'_part' if is_more else 'page'}.html", context)


def _readable(request: HttpRequest, session: Session) -> list[Session]:
    """Each is opened by itself: whoever has to say why, says it for each. One that is gone is left out."""
    return [found for one in chain_to(session) if (found := find_opened(request.user, one.pk))]
