"""Taking sessions out by a page: which format, and where it is somebody else's, why. The download is a stream.

`?session=…` (as often as needed) names sessions; without any it is everything of one's own, with `key=…` what was
recorded under that key of one's own, with `all=1` everything that one may have. With `format` the download begins at
once.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django import forms
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, QueryDict, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from history.exporting import CannotExport, Export, NothingSelected, Selection, prepare
from history.formats.all_exporters import EXPORTERS
from history.listing import ListFilters
from history.opening import NotPermitted, ReasonNeeded
from history.reasons import ReasonField


class ExportForm(forms.Form):
    format = forms.ChoiceField(
        label=_("Format"), choices=lambda: [(exporter.name, exporter.label) for exporter in EXPORTERS.values()]
    )
    reason = ReasonField(
        label=_("Why do you export it?"),
        help_text=_("Needed for what is somebody else’s: the owner sees your name, the time and what you write here."),
        required=False,
        widget=forms.TextInput,
    )


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
async def export(request: HttpRequest) -> HttpResponseBase:
    asked = request.POST if request.method == "POST" else request.GET
    selection = _selection(asked)
    if "format" not in asked:
        return await _page(request, asked)
    form = ExportForm(asked)
    if not form.is_valid():
        return await _page(request, asked, form=form, status=422)
    user = await request.auser()
    # In an address a reason may be anybody's: a link that somebody was made to follow says nothing in their name.
    reason = form.cleaned_data["reason"] if request.method == "POST" else ""
    try:
        export = await prepare(user, selection, asked["format"], reason=reason)
    except ReasonNeeded:
        form.add_error("reason", _("It is somebody else’s: say why."))
        return await _page(request, asked, form=form, status=403)
    except NotPermitted:
        return await _page(request, asked, problem=_("You may not export this."), status=403)
    except NothingSelected as error:
        raise Http404 from error
    except CannotExport as error:
        return await _page(request, asked, problem=str(error), status=422)
    return download(export)


def download(export: Export) -> StreamingHttpResponse:
    """A stream that is read as fast as it is sent."""
    response = StreamingHttpResponse(export, content_type=export.content_type)
    response["Content-Disposition"] = f'attachment; filename="{export.file_name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _selection(asked: QueryDict) -> Selection:
    named = asked.getlist("session")
    try:
        sessions = tuple(UUID(name) for name in named) or None
    except ValueError:
        raise Http404 from None
    if sessions is None and (key := asked.get("key")):
        return Selection(mine=True, filters=ListFilters(key=key))
    return Selection(sessions=sessions, mine=sessions is None and asked.get("all") != "1")


async def _page(
    request: HttpRequest, asked: QueryDict, *, form: ExportForm | None = None, problem: Any = "", status: int = 200
) -> HttpResponse:
    kept = [(name, value) for name in ("session", "key", "all") for value in asked.getlist(name)]
    context = {"form": form or ExportForm(), "kept": kept, "problem": problem, "count": len(asked.getlist("session"))}
    context["key"] = asked.get("key", "")
    return await sync_to_async(render)(request, "history/export/page.html", context, status=status)
