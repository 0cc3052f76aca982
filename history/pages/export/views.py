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

from history.access.permissions import Purpose, can_access_others
from history.access.reason_field import ReasonField
from history.access.reasons import NotPermitted, ReasonNeeded
from history.exporting import CannotExport, Export, NothingSelected, Selection, prepare
from history.formats.exporters import EXPORTERS
from history.models import Session
from history.record.listing import ListFilters


class ExportForm(forms.Form):
    format = forms.ChoiceField(
        label=_("Format"), choices=lambda: [(exporter.name, exporter.label) for exporter in EXPORTERS.values()]
    )
    reason = ReasonField(
        label=_("Reason"),
        help_text=_("Required for sessions of other users. The owner sees your name, the time and this reason."),
        required=False,
        widget=forms.TextInput,
    )

    def __init__(self, *args: Any, asks_reason: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not asks_reason:
            del self.fields["reason"]


def _asks_reason(user: Any, selection: Selection) -> bool:
    """Whether the selection may contain sessions of other users."""
    if selection.mine or not can_access_others(user, Purpose.EXPORT):
        return False
    if selection.sessions is None:
        return True
    return Session.objects.filter(pk__in=selection.sessions).exclude(owner=user).exists()


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
async def export(request: HttpRequest) -> HttpResponseBase:
    asked = request.POST if request.method == "POST" else request.GET
    selection = _selection(asked)
    user = await request.auser()
    asks_reason = await sync_to_async(_asks_reason)(user, selection)
    if "format" not in asked:
        return await _page(request, asked, form=ExportForm(asks_reason=asks_reason))
    form = ExportForm(asked, asks_reason=asks_reason)
    if not form.is_valid():
        return await _page(request, asked, form=form, status=422)
    # A reason in an address is ignored: a link from another person must not state a reason in the reader's name.
    reason = form.cleaned_data.get("reason", "") if request.method == "POST" else ""
    try:
        export = await prepare(user, selection, asked["format"], reason=reason)
    except ReasonNeeded:
        form.add_error("reason", _("Reason required: a session belongs to another user."))
        return await _page(request, asked, form=form, status=403)
    except NotPermitted:
        return await _page(request, asked, form=form, problem=_("You may not export this."), status=403)
    except NothingSelected as error:
        raise Http404 from error
    except CannotExport as error:
        return await _page(request, asked, form=form, problem=str(error), status=422)
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
    request: HttpRequest, asked: QueryDict, *, form: ExportForm, problem: Any = "", status: int = 200
) -> HttpResponse:
    kept = [(name, value) for name in ("session", "key", "all") for value in asked.getlist(name)]
    context = {"form": form, "kept": kept, "problem": problem, "count": len(asked.getlist("session"))}
    context["key"] = asked.get("key", "")
    return await sync_to_async(render)(request, "history/export/page.html", context, status=status)
