"""One form for whatever goes wrong under /api/: {"error": {"code", "message", "fields"?}}.

Programs go by `code`, people read `message`, and `fields` says which parameter is meant. Codes are listed in
docs/rest.md; a status may have several.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db import Error, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from history.access.key_cache import ApiKeyError, ScopeMissing
from history.access.reasons import NotPermitted as MayNot
from history.access.reasons import ReasonNeeded
from history.db.transactions import is_database_away
from history.errors import HistoryOff
from history.retention import UnderHold

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5
# What DRF calls these, in our words.
CODES = {
    "parse_error": "malformed",
    "authentication_failed": "not_authenticated",
    "permission_denied": "not_permitted",
    "error": "internal",
}


class BadRequest(exceptions.APIException):
    """What was asked for makes no sense; the fields say why."""

    status_code = status.HTTP_400_BAD_REQUEST
    default_code = "invalid"


class PermissionRefused(exceptions.PermissionDenied):
    """They may know that it is there, but not do this with it."""

    default_code = "not_permitted"
    default_detail = gettext_lazy("You may know of this, but not do that with it: it takes a right that you lack.")


class NoSuchThing(exceptions.NotFound):
    default_detail = gettext_lazy("There is no such thing here.")


class Changed(exceptions.APIException):
    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed"
    default_detail = gettext_lazy("It has changed since you read it: read it again.")


class ConflictError(exceptions.APIException):
    """It makes sense, and they may, but not now."""

    status_code = status.HTTP_409_CONFLICT


class RequestTooLarge(exceptions.APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class KeyRefused(exceptions.APIException):
    """Whatever the key ring says, with the status that it says."""

    def __init__(self, error: ApiKeyError) -> None:
        code = "scope_missing" if isinstance(error, ScopeMissing) else "bad_key"
        super().__init__(str(error), code if error.status < 500 else "unavailable")
        self.status_code = error.status
        self.wait = RETRY_SECONDS if error.retry_helps else None


class Unavailable(exceptions.APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"
    default_detail = gettext_lazy("The database cannot be used at the moment: please try again in a few seconds.")
    wait = RETRY_SECONDS


def handled(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """DRF's EXCEPTION_HANDLER. None: nobody's fault but ours, and Django logs it and asks for `failure`."""
    known = _known(error)
    if known is None:
        return None
    set_rollback()
    headers = {}
    if header := getattr(known, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(known, "wait", None):
        headers["Retry-After"] = f"{wait:.0f}"
    return Response(_told(known), status=known.status_code, headers=headers)


def _known(error: Exception) -> exceptions.APIException | None:
    if isinstance(error, exceptions.APIException):
        return error
    if isinstance(error, Http404):
        return NoSuchThing()
    if isinstance(error, PermissionDenied | MayNot):
        return PermissionRefused()
    if isinstance(error, ReasonNeeded):
        return PermissionRefused(_("Reason required: this belongs to another user."), "reason_needed")
    if isinstance(error, UnderHold):
        return ConflictError(_("It is under hold: release it first."), "under_hold")
    if isinstance(error, HistoryOff):
        return ConflictError(_("History is off: nothing is written."), "history_off")
    if isinstance(error, OperationalError | InterfaceError) or (isinstance(error, Error) and is_database_away(error)):
        logger.error("The API could not use the database.", exc_info=error)
        return Unavailable()
    return None


def _told(error: exceptions.APIException) -> dict[str, Any]:
    if isinstance(error, exceptions.ValidationError):
        fields = _fields(error.detail)
        return _error("invalid", _first(fields) or _("This makes no sense."), fields)
    code = str(error.get_codes())
    return _error(CODES.get(code, code), str(error.detail))


def _fields(detail: Any) -> dict[str, list[str]]:
    """Which field, and what is wrong with it; what is deeper is told of the field it is in."""
    if not isinstance(detail, dict):
        return {"body": _texts(detail)}
    return {"body" if name == "non_field_errors" else str(name): _texts(what) for name, what in detail.items()}


def _texts(detail: Any) -> list[str]:
    if isinstance(detail, dict):
        return [text for part in detail.values() for text in _texts(part)]
    return [text for part in detail for text in _texts(part)] if isinstance(detail, list) else [str(detail)]


def _first(fields: Mapping[str, list[str]]) -> str:
    return next((f"{name}: {texts[0]}" for name, texts in fields.items() if texts), "")


def _error(code: str, message: str, fields: Mapping[str, list[str]] | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message} | ({"fields": dict(fields)} if fields else {})}


# What never reaches a view of the API: no such address, a host that is not ours, a fault.


def is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api/")


def failure(status_code: int) -> JsonResponse:
    code, message = {
        400: ("malformed", _("This request cannot be understood.")),
        401: ("not_authenticated", _("Sign in, or send a valid API key, to send a body of this size.")),
        403: ("not_permitted", _("You may not do this.")),
        404: ("not_found", _("There is no such address: /api/docs lists them.")),
        408: ("timeout", _("The request took too long to arrive. Send it again.")),
        413: ("too_large", _("That is more than this server takes at once.")),
        415: ("unsupported_media_type", _("This content type or charset is not supported. Send UTF-8.")),
        500: ("internal", _("Something went wrong here; it is in the log.")),
        503: ("unavailable", _("The database cannot be used at the moment: please try again in a few seconds.")),
    }[status_code]
    return JsonResponse(_error(code, message), status=status_code)
