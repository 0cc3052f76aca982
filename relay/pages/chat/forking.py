"""A new session from any message, where the page has no socket: in the middle of a long one, or without JavaScript."""

from __future__ import annotations

from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from history.errors import HistoryOff, NoSuchEntry
from history.record.selectors import sessions_owned_by
from relay import conversation
from relay.chat.error_texts import of_error


@login_required
@require_POST
async def fork(request: HttpRequest, session_id: UUID, seq: int) -> HttpResponse:
    session = await sync_to_async(sessions_owned_by(request.user).filter(pk=session_id).first)()
    if session is None:
        raise Http404
    try:
        copy = await conversation.fork(request.user, session, at=seq)
    except NoSuchEntry as error:
        raise Http404 from error
    except HistoryOff as error:
        await sync_to_async(messages.error)(request, of_error(error))
        return HttpResponseRedirect(session.get_absolute_url())
    return HttpResponseRedirect(copy.get_absolute_url())
