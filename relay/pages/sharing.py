"""Share links: owners create, copy and revoke them; anyone with a link reads, signed in or not."""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe

from history.http import HtmxRequest, user_action, user_form, wants_fragment
from history.models import Session, ShareLink
from history.text import whole_number
from history.transcripts import share_links
from history.transcripts.page import TranscriptPosition, read_shared
from relay.pages.attachments import serve
from relay.pages.sidebar.views import own_session

DAYS = (1, 7, 30)


@user_form
def links(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    session = own_session(request, session_id)
    if request.method != "POST":
        return _show(request, session)
    days = next((days for days in DAYS if str(days) == request.POST.get("days")), None)
    expires_at = timezone.now() + timedelta(days=days) if days else None
    follows = request.POST.get("follows") == "1"
    try:
        made = share_links.share(session, by=request.user, follows=follows, expires_at=expires_at)
    except share_links.SharingOff:
        return _show(request, session, problem=_("Share links are disabled on this server."))
    except share_links.TooManyLinks:
        problem = _("A conversation can have up to %(most)s links. Revoke one first.") % {"most": share_links.MOST}
        return _show(request, session, problem=problem)
    return _show(request, session, made=made)


@user_action
def revoke_link(request: HtmxRequest, session_id: UUID, link_id: UUID) -> HttpResponse:
    session = own_session(request, session_id)
    share_links.revoke(get_object_or_404(ShareLink, session=session, pk=link_id), by=request.user)
    return _show(request, session) if wants_fragment(request) else redirect("relay:share", session.pk)


def _show(request: HtmxRequest, session: Session, *, made: ShareLink | None = None, problem: str = "") -> HttpResponse:
    links = share_links.links_of(session)
    shared = [{"link": link, "address": _address(link), "is_new": link == made} for link in links]
    context = {"session": session, "shared": shared, "days": DAYS, "problem": problem, "is_on": settings.PARLEY_SHARING}
    if wants_fragment(request):  # htmx swaps nothing in for an error, and the problem is part of what is shown
        response = render(request, "chat/_share.html", context)
    else:
        response = render(request, "chat/share.html", context, status=409 if problem else 200)
    patch_vary_headers(response, ["HX-Request"])
    return response


def _address(link: ShareLink) -> str:
    """Empty if the link was created under another SECRET_KEY."""
    token = share_links.token_of(link)
    return settings.PARLEY_URL + reverse("relay:shared", args=[token]) if token else ""


@require_safe
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Only the conversation: no list, no form, no script, no cookie."""
    link = share_links.find_share(token)
    if link is None:
        return _set_private_headers(render(request, "chat/shared_gone.html", status=404))
    if request.method == "GET":
        share_links.note_view(link)
    before, after, at = (whole_number(request.GET.get(name)) for name in ("before", "after", "at"))
    position = TranscriptPosition(before=before, after=after, at=at)
    transcript = read_shared(link.session, position, leaf=share_links.leaf_of(link), kinds=share_links.SHOWN)
    context = {"link": link, "session": link.session, "title": share_links.title_of(link)}
    context |= {"transcript": transcript, "share_token": token}
    return _set_private_headers(render(request, "chat/shared.html", context))


@require_safe
def attachment(request: HttpRequest, token: str, sha256: str) -> HttpResponse:
    link = share_links.find_share(token)
    found = share_links.shared_attachment(link, sha256) if link else None
    if found is None:
        raise Http404
    return _set_private_headers(serve(found, cache="no-store"))


def _set_private_headers(response: HttpResponse) -> HttpResponse:
    """The URL is a secret: keep it out of caches, search engines and referrers."""
    response["Cache-Control"] = "private, no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    return response
