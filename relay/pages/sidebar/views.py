"""Sidebar requests: pages of the session list, search, and actions on sessions of the user.

Each action is a plain form that redirects back; with htmx only the changed part is swapped. Other users get a 404.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.vary import vary_on_headers
from django_htmx.http import HttpResponseClientRedirect, replace_url, trigger_client_event

from history import retention
from history.http import HtmxRequest, is_own_url, user_action, user_form, user_page, wants_fragment
from history.models import Session
from history.record.selectors import sessions_owned_by
from history.sessions import actions
from relay.live.session_changes import notify_pages
from relay.pages.sidebar.sessions import (
    SidebarQuery,
    address_with,
    in_trash,
    just_deleted,
    load_sidebar,
    parse_id,
    rows_of,
)

MOST_AT_ONCE = 200


@user_page
@vary_on_headers("HX-Request")
def sidebar(request: HtmxRequest) -> HttpResponse:
    """The list, or a page of its own without JavaScript."""
    query = SidebarQuery.of(request.GET)
    context = {"sidebar": load_sidebar(request.user, query)}
    if not wants_fragment(request):
        return render(request, "chat/sidebar.html", context)
    response = render(request, "chat/_sidebar_rows.html" if query.before else "chat/_sidebar_list.html", context)
    if "q" in request.GET and not query.before:
        replace_url(response, address_with(request.htmx.current_url or "", words=query.words))
    return response


@user_page
def row(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    return show_row(request, own_session(request, session_id))


@user_action
def pin(request: HtmxRequest, session_id: UUID, *, pinned: bool) -> HttpResponse:
    session = own_session(request, session_id)
    actions.change(session, pinned=pinned)
    if is_from_head(request):
        return show_in_head(request, session, "pinned" if pinned else "unpinned")
    return show_list(request)


@user_action
def archive(request: HtmxRequest, session_id: UUID, *, archived: bool) -> HttpResponse:
    session = own_session(request, session_id)
    actions.change(session, archived=archived)
    what = "archived" if archived else "unarchived"
    if is_from_head(request):
        return show_in_head(request, session, what)
    return show_row(request, session) if "undo" in request.POST else show_gone(request, session, what)


@user_form
@vary_on_headers("HX-Request")
def rename(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    """The form in place of the row, and its result. An empty title changes nothing."""
    session = own_session(request, session_id)
    if request.method != "POST":
        template = "chat/_sidebar_rename.html" if wants_fragment(request) else "chat/rename.html"
        return render(request, template, {"session": session, "next": request.headers.get("Referer", "/")})
    if title := request.POST.get("title", "").strip():
        actions.change(session, title=title)
    response = show_row(request, session)
    renamed = {"session": str(session.pk), "title": session.title}
    return trigger_client_event(response, "sidebar:renamed", renamed, after="settle")


@user_action
def delete(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    session = own_session(request, session_id)
    actions.delete(session, by=request.user)
    if SidebarQuery.of(request.POST).current == session.pk and wants_fragment(request):
        return HttpResponseClientRedirect("/")
    return show_gone(request, session, "deleted")


@user_action
def undelete(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    session = get_object_or_404(in_trash(request.user), pk=session_id)
    restore_session(session, by=request.user)
    return show_row(request, session)


@user_action
def delete_many(request: HtmxRequest) -> HttpResponse:
    return _each(request, lambda session: actions.delete(session, by=request.user))


@user_action
def archive_many(request: HtmxRequest, *, archived: bool) -> HttpResponse:
    return _each(request, lambda session: actions.change(session, archived=archived))


@user_action
def undelete_all(request: HtmxRequest) -> HttpResponse:
    for session in just_deleted(request.user):
        restore_session(session, by=request.user)
    return show_list(request)


def _each(request: HtmxRequest, change: Callable[[Session], Any]) -> HttpResponse:
    own = sessions_owned_by(request.user)
    for session in own.filter(pk__in=selected_ids(request)):
        change(session)
    current = SidebarQuery.of(request.POST).current
    if current is not None and wants_fragment(request) and not own.filter(pk=current).exists():
        return HttpResponseClientRedirect("/")
    return show_list(request)


def selected_ids(request: HttpRequest) -> list[UUID]:
    return [found for text in request.POST.getlist("session")[:MOST_AT_ONCE] if (found := parse_id(text))]


def restore_session(session: Session, *, by: Any) -> None:
    retention.unhide(session, actor=by)
    notify_pages(session)


def show_row(request: HtmxRequest, session: Session) -> HttpResponse:
    if not wants_fragment(request):
        return redirect_back(request)
    [found] = rows_of([session], current=SidebarQuery.of(request.POST or request.GET).current)
    return render(request, "chat/_sidebar_session.html", found._asdict())


def show_gone(request: HtmxRequest, session: Session, what: str) -> HttpResponse:
    """Replace the row by the outcome and Undo."""
    if not wants_fragment(request):
        return redirect_back(request, leaving=session)
    return render(request, "chat/_sidebar_gone.html", {"session": session, "what": what})


def is_from_head(request: HtmxRequest) -> bool:
    """Whether the action was chosen in the menu of the open session, not in the list."""
    return bool(request.htmx) and request.POST.get("from") == "head"


def show_in_head(request: HtmxRequest, session: Session, what: str) -> HttpResponse:
    """Show the outcome and Undo in the head of the session."""
    return render(request, "chat/_session_changed.html", {"session": session, "what": what})


def show_list(request: HtmxRequest) -> HttpResponse:
    if not wants_fragment(request):
        return redirect_back(request)
    query = SidebarQuery.of(request.POST)
    return render(request, "chat/_sidebar_list.html", {"sidebar": load_sidebar(request.user, query)})


def own_session(request: HttpRequest, session_id: UUID) -> Session:
    return get_object_or_404(sessions_owned_by(request.user), pk=session_id)


def redirect_back(request: HttpRequest, *, leaving: Session | None = None, otherwise: str = "/") -> HttpResponse:
    """Redirect to the page of the form, unless its session is deleted."""
    address = request.POST.get("next", "")
    if not is_own_url(request, address) or (leaving is not None and leaving.hidden_at and str(leaving.pk) in address):
        return redirect(otherwise)
    return HttpResponseRedirect(address)
