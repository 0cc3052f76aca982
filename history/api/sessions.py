"""`/api/history/sessions` and `/api/history/sessions/<id>`: what is in lists, and what its owner may change of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from history.access import permissions
from history.access.permissions import Purpose
from history.api.access import session_for
from history.api.answers import SessionAnswer, SessionsAnswer
from history.api.errors import NoSuchThing
from history.api.etags import answer_with_tag, refuse_if_changed, tagged
from history.api.fields import place_of
from history.api.pagination import page_link
from history.api.query import OneAsked, QueryParameters, SessionChange, SessionsAsked, list_filters
from history.api.schema import documented
from history.api.views import ApiView, reason_of, viewer_of
from history.models import Session
from history.record.listing import list_sessions
from history.search import sessions_with
from history.sessions import actions


class Sessions(ApiView):
    @documented(
        "list_sessions",
        "List sessions",
        SessionsAnswer,
        asked=SessionsAsked,
        has_tag=True,
        description="Those that you may see, newest activity first, without their texts.",
    )
    def get(self, request: Request) -> Response:
        asked = SessionsAsked.of(request)
        sessions, is_cut = _asked_for(request, asked)
        page = list_sessions(sessions, filters=list_filters(asked), before=asked["cursor"], limit=asked["limit"])
        next_page = page_link(request, cursor=place_of(page.next_before))
        told = {"next": next_page, "previous": None, "results": page.sessions, "is_cut": is_cut}
        return tagged(request, SessionsAnswer(told).data)


def _asked_for(request: Request, asked: Mapping[str, Any]) -> tuple[QuerySet[Session], bool]:
    viewer = viewer_of(request)
    sessions = permissions.sessions_for(viewer, Purpose.LIST)
    if not asked["q"]:
        return sessions, False
    found, is_all = sessions_with(viewer, asked["q"])
    return sessions.filter(pk__in=found), not is_all


class OneSession(ApiView):
    scopes = {"GET": "read", "PATCH": "write", "DELETE": "delete"}

    @documented(
        "read_session",
        "Read a session",
        SessionAnswer,
        asked=QueryParameters,
        path=("session_id",),
        has_tag=True,
        description="What a list shows of it; no texts.",
    )
    def get(self, request: Request, session_id: str) -> Response:
        QueryParameters.of(request)
        return tagged(request, _told(session_for(request, session_id, Purpose.LIST)))

    @documented(
        "change_session",
        "Change a session",
        SessionAnswer,
        asked=QueryParameters,
        path=("session_id",),
        body=SessionChange,
        statuses=(412, 413, 415),
        description="Title, pin and archive. With `If-Match` only if it is still what you have read.",
    )
    def patch(self, request: Request, session_id: str) -> Response:
        QueryParameters.of(request)
        session = session_for(request, session_id, Purpose.WRITE)
        change = SessionChange(data=request.data)
        change.is_valid(raise_exception=True)
        refuse_if_changed(request, _told(session))
        actions.change(session, **change.validated_data)
        return answer_with_tag(_told(session_for(request, session.pk, Purpose.WRITE)))

    @documented(
        "delete_session",
        "Delete a session",
        None,
        asked=OneAsked,
        path=("session_id",),
        success=204,
        statuses=(409, 412),
        description="Gone at once, and for good when the trash is emptied. One's own under hold is hidden, and kept. "
        "Somebody else's needs a `reason`, and is refused under hold.",
    )
    def delete(self, request: Request, session_id: str) -> Response:
        OneAsked.of(request)
        session = session_for(request, session_id, Purpose.DELETE)
        refuse_if_changed(request, _told(session))
        if not actions.delete(session, by=viewer_of(request), reason=reason_of(request)):
            raise NoSuchThing  # somebody else was faster
        return Response(status=204)


def _told(session: Session) -> dict[str, Any]:
    return dict(SessionAnswer(session).data)
