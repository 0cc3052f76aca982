"""What pages of the record have in common, and one entry of a session whole."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from history.bodies import clean
from history.entries import entry_to_json
from history.errors import NoSuchEntry
from history.models import Message, Session
from history.previews import preview
from history.selectors import Viewer, entries_of, find_session
from history.transcripts import Place, Transcript, read_page

LARGEST = 2**53
DEEPEST = 8

WHOLE_CHARS = 1_000_000
"""More of a text than this is not put into a page; it can be loaded by itself."""


def session_or_404(viewer: Viewer, session_id: UUID) -> Session:
    session = find_session(viewer, session_id)
    if session is None:
        raise Http404
    return session


def message_or_404(session: Session, seq: int) -> Message:
    message = Message.objects.filter(session=session, seq=min(seq, LARGEST)).first()
    if message is None:
        raise Http404
    return message


def transcript_or_404(session: Session, asked: QueryDict) -> Transcript:
    """The page of a session that an address asks for."""
    try:
        return read_page(session, _place(asked))
    except NoSuchEntry as error:
        raise Http404 from error


@login_required
@require_safe
def whole_entry(request: HttpRequest, session_id: UUID, seq: int) -> HttpResponse:
    """One entry as it is stored, however long: where a page shows only the beginning of it.

    `?text=results.0.parts.1.text` is one text of it, `?as=text` what a person would copy.
    """
    session = session_or_404(request.user, session_id)
    entry = entries_of([message_or_404(session, seq)])[0]
    if request.GET.get("as") == "text":
        return _plain(entry.text)
    if "text" not in request.GET:
        return JsonResponse(entry_to_json(entry), json_dumps_params={"indent": 2})
    text = _text_at(entry_to_json(entry), request.GET["text"])
    if request.headers.get("HX-Request") != "true":
        return _plain(text)
    cut = preview(clean(text), WHOLE_CHARS)
    return render(request, "history/_whole.html", {"session": session, "seq": seq, "cut": cut})


def _plain(text: str) -> HttpResponse:
    return HttpResponse(clean(text), content_type="text/plain; charset=utf-8")


def _text_at(value: Any, path: str) -> str:
    """The text at the end of a path through JSON."""
    for step in path.split(".")[:DEEPEST]:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isascii() and step.isdigit():
            value = next(iter(value[int(step) :]), None)
        else:
            raise Http404
    if not isinstance(value, str):
        raise Http404
    return value


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
