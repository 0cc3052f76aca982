"""Chat pages: read and continue a session, start and fork one.

A page without JavaScript posts its form here; with JavaScript the same form goes over the page's socket.
"""

from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils import timezone
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_http_methods, require_safe
from django_htmx.http import HttpResponseClientRedirect

from history.access.reasons import unseen_readers
from history.entries import ModelInput
from history.errors import HistoryError, HistoryOff, NoSuchEntry
from history.http import HtmxRequest, user_action
from history.models import Session
from history.pages.session import message_or_404, session_or_404, transcript_or_404
from history.record.selectors import entries_of
from history.text import whole_number
from relay import conversation
from relay.chat.error_texts import error_text
from relay.commands import BadCommand, help_text, parse, suggestions
from relay.errors import RelayError
from relay.models import Run
from relay.pages.chat.choices import examples, pickers_for
from relay.pages.chat.fragments import state_at
from relay.pages.panel import panel_of, work_of
from relay.pages.sidebar.sessions import parse_id
from relay.pages.sidebar.views import own_session
from relay.tools.base import all_tools

REGIONS = ("older", "newer")  # targets of htmx requests that get further rows instead of the page


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
async def new_chat(request: HtmxRequest) -> HttpResponse:
    if request.method != "POST":
        return await sync_to_async(_new_page)(request)
    if _is_help_command(request.POST.get("text", "")):
        return await sync_to_async(_new_page)(request, words=help_text(all_tools()))
    try:
        session = await conversation.start_session(request.user, _draft_of(request), client=_client(request))
    except (RelayError, HistoryError) as error:
        return await sync_to_async(_new_page)(request, problem=error_text(error))
    return _go_to(request, session)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
async def session_page(request: HtmxRequest, session_id: UUID) -> HttpResponse:
    if request.method != "POST":
        return await sync_to_async(_session_page)(request, session_id)
    session = await sync_to_async(own_session)(request, session_id)
    after = whole_number(request.POST.get("after"))
    seen = conversation.ViewerPosition(
        after=session.head if after is None else after,
        run=parse_id(request.POST.get("run", "")),
        on_leaf=bool(request.POST.get("leaf")),
    )
    try:
        sent = await conversation.send(request.user, session, _draft_of(request), seen, client=_client(request))
    except (RelayError, HistoryError) as error:
        return await sync_to_async(_session_page)(request, session_id, problem=error_text(error))
    if sent.words:
        messages.info(request, sent.words)
    return _go_to(request, Session(pk=sent.go_to) if sent.go_to else session)


@login_required
@require_safe
def edit_form(request: HttpRequest, session_id: UUID, seq: int) -> HttpResponse:
    session = own_session(request, session_id)
    message = message_or_404(session, seq)
    if message.kind != ModelInput.kind:
        raise Http404
    context = {"session": session, "message": message, "entry": entries_of([message])[0]}
    return render(request, "chat/_edit.html", context)


def _is_help_command(text: str) -> bool:
    """`/help` is the only command that needs neither a session nor a tool."""
    try:
        command = parse(text, all_tools())
    except BadCommand:
        return False
    return command is not None and command.name == "help"


def _new_page(request: HttpRequest, *, problem: str = "", words: str = "") -> HttpResponse:
    agent, model = request.POST.get("agent", ""), request.POST.get("model", "")
    context = _composer(request, problem, words) | {
        "examples": examples(),
        "pickers": pickers_for(None, agent=agent, model=model),
        "may_compose": settings.CHAT_HISTORY_ENABLED,
    }
    return render(request, "chat/new.html", context, status=422 if problem else 200)


def _session_page(request: HtmxRequest, session_id: UUID, *, problem: str = "") -> HttpResponse:
    """Render the page, or only further rows for htmx."""
    session = session_or_404(request.user, session_id)
    transcript = transcript_or_404(session, request.GET)
    may_compose = settings.CHAT_HISTORY_ENABLED and session.owner_id == request.user.pk
    after = transcript.place.leaf or session.head
    region = request.htmx.target if request.htmx and request.htmx.target in REGIONS else None
    context = {
        "session": session,
        "transcript": transcript,
        "region": region,
        "may_compose": may_compose,
        # In the middle of a long conversation there is no end to which a live answer could be added: no socket there.
        "can_write": may_compose and not transcript.newer,
        "after": after,
    }
    if not region:
        run = Run.objects.filter(session=session.pk, ended_at=None, leaf=after).first()
        context |= _composer(request, problem) | state_at(session, after, run)
        context |= {"pickers": pickers_for(session), "panel": panel_of(session, reader=request.user)}
        context |= {"readers": unseen_readers(session) if session.owner_id == request.user.pk else ()}
        context |= work_of(session, reader=request.user, leaf=transcript.place.leaf)
    template = "history/_more.html" if region else "chat/session.html"
    response = render(request, template, context, status=422 if problem else 200)
    patch_vary_headers(response, ["HX-Request", "HX-Target"])
    return response


def _composer(request: HttpRequest, problem: str, words: str = "") -> dict[str, Any]:
    """The text box with its commands, the text of a refused message, and notices: also those of before a redirect."""
    notices = [{"level": message.tags, "text": str(message)} for message in messages.get_messages(request)]
    return {
        "history_is_on": settings.CHAT_HISTORY_ENABLED,
        "commands": tuple(suggestions(all_tools())),
        "problem": problem,
        "draft_text": request.POST.get("text", "") if problem else "",
        "notices": [*notices, {"level": "", "text": words}] if words else notices,
    }


def _draft_of(request: HttpRequest) -> conversation.MessageDraft:
    texts = {name: request.POST.get(name, "") for name in ("text", "agent", "model")}
    return conversation.MessageDraft(**texts, attachments=request.POST.getlist("attachment"))


def _client(request: HttpRequest) -> dict[str, str]:
    """Origin of the message, for the record of the call."""
    return {"address": str(request.META.get("REMOTE_ADDR") or ""), "connected_at": timezone.now().isoformat()}


def _go_to(request: HtmxRequest, session: Session) -> HttpResponse:
    redirect = HttpResponseClientRedirect if request.htmx else HttpResponseRedirect
    return redirect(session.get_absolute_url())


@user_action
async def fork(request: HttpRequest, session_id: UUID, seq: int) -> HttpResponse:
    session = await sync_to_async(own_session)(request, session_id)
    try:
        session = await conversation.fork(request.user, session, at=seq)
    except NoSuchEntry as error:
        raise Http404 from error
    except HistoryOff as error:
        await sync_to_async(messages.error)(request, error_text(error))
    return HttpResponseRedirect(session.get_absolute_url())
