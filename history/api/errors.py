"""Errors of the REST API in one form: {"error": {"code", "message", "fields"?}}.

`fields` names invalid parameters. docs/rest.md lists the codes; a status may have several.
"""

import logging
from collections.abc import Mapping

from django.core.exceptions import PermissionDenied
from django.db import Error, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, JsonResponse
from django.utils.translation import gettext as _, gettext_lazy
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from history.access.key_cache import ApiKeyError, ScopeMissing
from history.access.reasons import NotPermitted, ReasonNeeded
from history.db.transactions import is_database_away
from history.errors import HistoryOff
from history.retention import UnderHold

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5
# DRF's codes → ours.
CODES = {
    "parse_error": "malformed",
    "authentication_failed": "not_authenticated",
    "permission_denied": "not_permitted",
    "error": "internal",
}


class PermissionRefused(exceptions.PermissionDenied):
    default_code = "not_permitted"
    default_detail = gettext_lazy("You can see this, but you do not have permission for this action.")


class ResourceNotFound(exceptions.NotFound):
    default_detail = gettext_lazy("Not found.")


class PreconditionFailed(exceptions.APIException):
    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "changed"
    default_detail = gettext_lazy("It has changed since you read it. Read it again.")


class ConflictError(exceptions.APIException):
    status_code = status.HTTP_409_CONFLICT


class RequestTooLarge(exceptions.APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"


class KeyRefused(exceptions.APIException):
    def __init__(self, error: ApiKeyError) -> None:
        code = "scope_missing" if isinstance(error, ScopeMissing) else "bad_key"
        super().__init__(str(error), code if error.status < 500 else "unavailable")
        self.status_code = error.status
        self.wait = RETRY_SECONDS if error.retry_helps else None


class Unavailable(exceptions.APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "unavailable"
    default_detail = gettext_lazy("The database is not available at the moment. Try again in a few seconds.")
    wait = RETRY_SECONDS


def handle_exception(error: Exception, context: Mapping[str, object]) -> Response | None:
    """DRF's EXCEPTION_HANDLER. None for a bug: Django logs it and calls `failure`."""
    known = _api_exception(error)
    if known is None:
        return None
    set_rollback()
    headers = {}
    if header := getattr(known, "auth_header", None):
        headers["WWW-Authenticate"] = header
    if wait := getattr(known, "wait", None):
        headers["Retry-After"] = f"{wait:.0f}"
    return Response(_body(known), status=known.status_code, headers=headers)


def _api_exception(error: Exception) -> exceptions.APIException | None:
    if isinstance(error, exceptions.APIException):
        return error
    if isinstance(error, Http404):
        return ResourceNotFound()
    if isinstance(error, PermissionDenied | NotPermitted):
        return PermissionRefused()
    if isinstance(error, ReasonNeeded):
        return PermissionRefused(_("Reason required: this belongs to another user."), "reason_needed")
    if isinstance(error, UnderHold):
        return ConflictError(_("It is under hold. Release it first."), "under_hold")
    if isinstance(error, HistoryOff):
        return ConflictError(_("History is off. Nothing was stored."), "history_off")
    if isinstance(error, OperationalError | InterfaceError) or (isinstance(error, Error) and is_database_away(error)):
        logger.error("The API could not use the database.", exc_info=error)
        return Unavailable()
    return None


def _body(error: exceptions.APIException) -> dict[str, object]:
    if isinstance(error, exceptions.ValidationError):
        fields = _fields(error.detail)
        first = next((f"{name}: {texts[0]}" for name, texts in fields.items() if texts), "")
        return _error("invalid", first or _("The request is not valid."), fields)
    code = str(error.get_codes())
    return _error(CODES.get(code, code), str(error.detail))


def _fields(detail: object) -> dict[str, list[str]]:
    """Errors by field; those of nested values belong to the field that holds them."""
    if not isinstance(detail, dict):
        return {"body": _texts(detail)}
    return {"body" if name == "non_field_errors" else str(name): _texts(part) for name, part in detail.items()}


def _texts(detail: object) -> list[str]:
    if isinstance(detail, dict):
        return [text for part in detail.values() for text in _texts(part)]
    return [text for part in detail for text in _texts(part)] if isinstance(detail, list) else [str(detail)]


def _error(code: str, message: str, fields: Mapping[str, list[str]] | None = None) -> dict[str, object]:
    return {"error": {"code": code, "message": message} | ({"fields": dict(fields)} if fields else {})}


# Errors outside the API's views: an unknown URL, a foreign host, a bug.
def is_api(request: HttpRequest) -> bool:
    return request.path_info.startswith("/api/")


def refusal(status_code: int) -> tuple[str, str]:
    """Code and message."""
    return {
        400: ("malformed", _("The request could not be parsed.")),
        401: ("not_authenticated", _("Sign in or send a valid API key to send a body of this size.")),
        403: ("not_permitted", _("You do not have permission to do this.")),
        404: ("not_found", _("No such endpoint. See /api/docs.")),
        408: ("timeout", _("The request took too long to arrive. Send it again.")),
        413: ("too_large", _("The request is too large for this server.")),
        415: ("unsupported_media_type", _("This content type or charset is not supported. Send UTF-8.")),
        500: ("internal", _("Something went wrong. The server log has the details.")),
        503: ("unavailable", _("The database is not available at the moment. Try again in a few seconds.")),
    }[status_code]


def failure(status_code: int) -> JsonResponse:
    code, message = refusal(status_code)
    return JsonResponse(_error(code, message), status=status_code)
