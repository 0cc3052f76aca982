"""One entry of a session whole, where a page shows only the beginning of it."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from history.db.packing import clean
from history.entries import ModelInput, entry_to_json
from history.http.htmx import HtmxRequest
from history.pages.session_access import message_or_404, session_or_404
from history.record.selectors import entries_of
from history.transcripts.previews import preview

DEEPEST = 8
# Texts that a page renders as Markdown. Arguments and results of tools are shown as they are.
_PROSE = re.compile(r"parts\.\d+\.text|plan|instruction|content|summary")

WHOLE_CHARS = 1_000_000
"""More of a text than this is not put into a page; it can be loaded by itself."""


@login_required
@require_safe
def whole_entry(request: HtmxRequest, session_id: UUID, seq: int) -> HttpResponse:
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
    if not request.htmx:
        return _plain(text)
    path = request.GET["text"]
    context = {"session": session, "seq": seq, "cut": preview(clean(text), WHOLE_CHARS), "text_path": path}
    if not _PROSE.fullmatch(path):
        return render(request, "history/_output.html", context)
    return render(request, "history/_said.html" if isinstance(entry, ModelInput) else "history/_prose.html", context)


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
