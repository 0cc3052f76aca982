"""The export page /history/export/: format, reason for sessions of other users, and the download as a stream.

`?session=…` (repeatable) selects sessions. Without it, all sessions of the user are selected; with `key=…` those
recorded under this key of theirs, with `all=1` all that they may export. With `format` the download begins at once.
"""

from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django import forms
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from history.access.permissions import Purpose, can_access_others
from history.access.reasons import NotPermitted, ReasonField, ReasonNeeded
from history.exporting import CannotExport, NothingSelected, Selection, begin_async
from history.formats.writers import EXPORTERS
from history.http import download
from history.models import Session
from history.search import SessionQuery


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

    def __init__(self, *args: Any, asks_reason: bool) -> None:
        super().__init__(*args)
        if not asks_reason:
            del self.fields["reason"]


def _asks_reason(user: Any, selection: Selection) -> bool:
    if selection.mine or not can_access_others(user, Purpose.EXPORT):
        return False
    if selection.sessions is None:
        return True
    return Session.objects.filter(pk__in=selection.sessions).exclude(owner=user).exists()


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
async def export(request: HttpRequest) -> HttpResponseBase:
    values = request.POST if request.method == "POST" else request.GET
    selection = await sync_to_async(_selection)(values)  # reads the key
    user = await request.auser()
    asks_reason = await sync_to_async(_asks_reason)(user, selection)
    if "format" not in values:
        return await _page(request, values, form=ExportForm(asks_reason=asks_reason))
    form = ExportForm(values, asks_reason=asks_reason)
    if not form.is_valid():
        return await _page(request, values, form=form, status=422)
    # A reason in an address is ignored: a link from another person must not state a reason in the reader's name.
    reason = form.cleaned_data.get("reason", "") if request.method == "POST" else ""
    try:
        export = await begin_async(user, selection, values["format"], reason=reason)
    except ReasonNeeded:
        form.add_error("reason", _("Reason required: a session belongs to another user."))
        return await _page(request, values, form=form, status=403)
    except NotPermitted:
        return await _page(request, values, form=form, problem=_("You may not export this."), status=403)
    except NothingSelected as error:
        raise Http404 from error
    except CannotExport as error:
        return await _page(request, values, form=form, problem=str(error), status=422)
    return download(export)


def _selection(values: QueryDict) -> Selection:
    try:
        sessions = tuple(UUID(name) for name in values.getlist("session")) or None
    except ValueError:
        raise Http404 from None
    if sessions is None and (key := values.get("key")):
        return Selection(mine=True, filters=SessionQuery.parse({"key": key}))
    return Selection(sessions=sessions, mine=sessions is None and values.get("all") != "1")


async def _page(
    request: HttpRequest, values: QueryDict, *, form: ExportForm, problem: object = "", status: int = 200
) -> HttpResponse:
    hidden = [(name, value) for name in ("session", "key", "all") for value in values.getlist(name)]
    context = {"form": form, "hidden": hidden, "problem": problem, "count": len(values.getlist("session"))}
    context["key"] = values.get("key", "")
    return await sync_to_async(render)(request, "history/export/page.html", context, status=status)
