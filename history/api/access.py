"""Sessions by name: 404 for what somebody may not even list, 403 in words for what they may not do with it."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request

from history.access import permissions, reasons
from history.access.permissions import Purpose
from history.api.errors import NoSuchThing, PermissionRefused
from history.api.views import reason_of, viewer_of
from history.models import Session


def session_for(request: Request, name: str | UUID, purpose: Purpose) -> Session:
    viewer = viewer_of(request)
    session = permissions.find(viewer, name, purpose)
    if session is not None:
        return session
    raise PermissionRefused if permissions.find(viewer, name, Purpose.LIST) else NoSuchThing


def open_session(request: Request, name: str | UUID) -> Session:
    """To be read: where it is somebody else's, for a reason."""
    session = reasons.find_opened(viewer_of(request), name, reason=reason_of(request))
    if session is None:
        raise NoSuchThing
    return session
