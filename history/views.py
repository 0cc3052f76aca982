"""Pages of the record: one session to read, and one entry of it whole."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from history.entries import entry_to_json
from history.errors import NoSuchEntry
from history.models import Message, Session
from history.selectors import entries_of, find_session
from history.transcripts import Place, read_page

LARGEST = 2**53


@login_required
@require_safe
def session_page(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """The transcript; only its changing region where htmx asks for it."""
    session = _session(request, session_id)
    try:
        transcript = read_page(session, _place(request.GET))
    except NoSuchEntry as error:
        raise Http404 from error
    is_region = request.headers.get("HX-Request") == "true" and "HX-Boosted" not in request.headers
    template = "history/_transcript.html" if is_region else "history/session.html"
    context = {"session": session, "transcript": transcript, "history_is_on": settings.CHAT_HISTORY_ENABLED}
    response = render(request, template, context)
    patch_vary_headers(response, ["HX-Request"])
    return response


@login_required
@require_safe
def whole_entry(request: HttpRequest, session_id: UUID, seq: int) -> HttpResponse:
    """One entry as it is stored, however long: where a page shows only the beginning of it."""
    session = _session(request, session_id)
    message = Message.objects.filter(session=session, seq=min(seq, LARGEST)).first()
    if message is None:
        raise Http404
    return JsonResponse(entry_to_json(entries_of([message])[0]), json_dumps_params={"indent": 2})


def _session(request: HttpRequest, session_id: UUID) -> Session:
    session = find_session(request.user, session_id)
    if session is None:
        raise Http404
    return session


def _place(asked: QueryDict) -> Place:
    return Place(
        before=_number(asked, "before"),
        after=_number(asked, "after"),
        at=_number(asked, "at"),
        leaf=_number(asked, "leaf"),
        internal=asked.get("internal") == "1",
    )


def _number(asked: QueryDict, name: str) -> int | None:
    """What is no number of an entry asks for nothing."""
    text = asked.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
