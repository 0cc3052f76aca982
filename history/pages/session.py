"""Pages of one session: an entry in full and the timeline; lookups that raise 404 for the pages of other apps."""

import re
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from history.access.permissions import Purpose, Viewer, sessions_for
from history.access.reasons import find_opened
from history.db.packing import clean
from history.entries import ModelInput, entry_to_json
from history.errors import NoSuchEntry
from history.http import HtmxRequest, user_page
from history.models import Message, Session
from history.record.selectors import entries_of
from history.text import whole_number
from history.transcripts.page import Transcript, TranscriptPosition, read_page
from history.transcripts.previews import preview
from history.transcripts.timeline import timeline_of

LARGEST = 2**53
DEEPEST = 8
WHOLE_CHARS = 1_000_000  # a longer text is not put into a page; it can be loaded by itself
# Texts that a page renders as Markdown. Arguments and results of tools are shown as they are.
_PROSE = re.compile(r"parts\.\d+\.text|plan|instruction|content|summary")


def session_or_404(viewer: Viewer, session_id: UUID | str) -> Session:
    """A session to read. `pages.reasons` answers viewers who may only list it or have to give a reason first."""
    session = find_opened(viewer, session_id)
    if session is None:
        raise Http404
    return session


def message_or_404(session: Session, seq: int) -> Message:
    return get_object_or_404(Message.objects.at(session, min(seq, LARGEST)))


def transcript_or_404(session: Session, values: QueryDict) -> Transcript:
    numbers: dict[str, Any] = {name: whole_number(values.get(name)) for name in ("before", "after", "at", "leaf")}
    try:
        return read_page(session, TranscriptPosition(**numbers, internal=values.get("internal") == "1"))
    except NoSuchEntry as error:
        raise Http404 from error


@login_required
@require_safe
def whole_entry(request: HtmxRequest, session_id: UUID, seq: int) -> HttpResponse:
    """One entry in full, as JSON. `?text=results.0.parts.1.text` is one text of it, `?as=text` is the text to copy."""
    session = session_or_404(request.user, session_id)
    entry = entries_of([message_or_404(session, seq)])[0]
    if request.GET.get("as") == "text":
        return _plain(entry.text)
    if "text" not in request.GET:
        return JsonResponse(entry_to_json(entry), json_dumps_params={"indent": 2})
    path = request.GET["text"]
    text = _text_at(entry_to_json(entry), path)
    if not request.htmx:
        return _plain(text)
    context = {"session": session, "seq": seq, "cut": preview(clean(text), WHOLE_CHARS), "text_path": path}
    if not _PROSE.fullmatch(path):
        return render(request, "history/_output.html", context)
    return render(request, "history/_said.html" if isinstance(entry, ModelInput) else "history/_prose.html", context)


def _plain(text: str) -> HttpResponse:
    return HttpResponse(clean(text), content_type="text/plain; charset=utf-8")


def _text_at(value: object, path: str) -> str:
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


@user_page
def timeline(request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Names and times without texts: for all viewers who may list the session."""
    session = get_object_or_404(sessions_for(request.user, Purpose.LIST), pk=session_id)
    context = {"session": session, "timeline": timeline_of(session, before=whole_number(request.GET.get("before")))}
    return render(request, "history/timeline/page.html", context)
