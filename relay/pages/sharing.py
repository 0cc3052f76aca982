"""Share links: owners create, copy and revoke them; anyone with a link reads, signed in or not."""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from history.http import HtmxRequest, wants_fragment
from history.models import Session, ShareLink
from history.pages.session import number_in
from history.transcripts.page import TranscriptPosition, read_shared
from history.transcripts.share_links import (
    MOST,
    SHOWN,
    SharingOff,
    TooManyLinks,
    find_share,
    leaf_of,
    links_of,
    note_view,
    revoke,
    share,
    shared_attachment,
    title_of,
    token_of,
)
from relay.pages.attachments import serve
from relay.pages.sidebar.views import own_session

DAYS = (1, 7, 30)


# Pages of the owner.


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def links(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    session = own_session(request, session_id)
    if request.method != "POST":
        return _show(request, session)
    days = next((days for days in DAYS if str(days) == request.POST.get("days")), None)
    expires_at = timezone.now() + timedelta(days=days) if days else None
    try:
        made = share(session, by=request.user, follows=request.POST.get("follows") == "1", expires_at=expires_at)
    except (SharingOff, TooManyLinks) as error:
        return _show(request, session, problem=_error_text(error), status=409)
    return _show(request, session, made=made)


@login_required
@require_POST
def revoke_link(request: HtmxRequest, session_id: UUID, link_id: UUID) -> HttpResponse:
    session = own_session(request, session_id)
    revoke(get_object_or_404(ShareLink, session=session, pk=link_id), by=request.user)
    return _show(request, session) if wants_fragment(request) else redirect("relay:share", session.pk)


def _show(
    request: HtmxRequest, session: Session, *, made: ShareLink | None = None, problem: str = "", status: int = 200
) -> HttpResponse:
    shared = [{"link": link, "address": _address(link), "is_new": link == made} for link in links_of(session)]
    context = {"session": session, "shared": shared, "days": DAYS, "problem": problem}
    context["is_on"] = settings.PARLEY_SHARING
    # htmx swaps nothing in for an error, and the problem is part of what is shown.
    in_place = wants_fragment(request)
    response = render(
        request, "chat/_share.html" if in_place else "chat/share.html", context, status=200 if in_place else status
    )
    patch_vary_headers(response, ["HX-Request"])
    return response


def _address(link: ShareLink) -> str:
    """Empty if the link was created under another SECRET_KEY."""
    token = token_of(link)
    return settings.PARLEY_URL + reverse("relay:shared", args=[token]) if token else ""


def _error_text(error: SharingOff | TooManyLinks) -> str:
    if isinstance(error, SharingOff):
        return _("Share links are disabled on this server.")
    return _("A conversation can have up to %(most)s links. Revoke one first.") % {"most": MOST}


# Pages of readers.


@require_safe
def shared(request: HttpRequest, token: str) -> HttpResponse:
    """Only the conversation: no list, no form, no script, no cookie."""
    link = find_share(token)
    if link is None:
        return _set_private_headers(render(request, "chat/shared_gone.html", status=404))
    if request.method == "GET":
        note_view(link)
    position = TranscriptPosition(
        before=number_in(request.GET, "before"), after=number_in(request.GET, "after"), at=number_in(request.GET, "at")
    )
    transcript = read_shared(link.session, position, leaf=leaf_of(link), kinds=SHOWN)
    context = {"link": link, "session": link.session, "transcript": transcript, "share_token": token}
    context["title"] = title_of(link)
    return _set_private_headers(render(request, "chat/shared.html", context))


@require_safe
def attachment(request: HttpRequest, token: str, sha256: str) -> HttpResponse:
    link = find_share(token)
    found = shared_attachment(link, sha256) if link else None
    if found is None:
        raise Http404
    return _set_private_headers(serve(found, cache="no-store"))


def _set_private_headers(response: HttpResponse) -> HttpResponse:
    """The URL is a secret: keep it out of caches, search engines and referrers."""
    response["Cache-Control"] = "private, no-store"
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex, nofollow, noarchive"
    return response
