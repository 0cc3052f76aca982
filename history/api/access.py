"""Sessions by name: 404 for what somebody may not even list, 403 in words for what they may not do with it."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request

from history import opening, rights
from history.api.errors import NoSuchThing, NotPermitted
from history.api.views import reason_of, viewer_of
from history.models import Session
from history.rights import Purpose


def session_for(request: Request, name: str | UUID, purpose: Purpose) -> Session:
    viewer = viewer_of(request)
    session = rights.find(viewer, name, purpose)
    if session is not None:
        return session
    raise NotPermitted if rights.find(viewer, name, Purpose.LIST) else NoSuchThing


def open_session(request: Request, name: str | UUID) -> Session:
    """To be read: where it is somebody else's, for a reason."""
    session = opening.find_opened(viewer_of(request), name, reason=reason_of(request))
    if session is None:
        raise NoSuchThing
    return session
