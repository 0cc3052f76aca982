"""`/api/history/export`: sessions in a format, as a stream. The service is `history.exporting`; docs/export.md."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from history.api.errors import NoSuchThing
from history.api.query import ExportAsked, list_filters
from history.api.schema import documented
from history.api.views import ApiView, reason_of, viewer_of
from history.exporting import CannotExport, Export, NothingSelected, Selection, begin
from history.formats.exporters import EXPORTERS

JSON = "application/json"
TYPES = sorted({"application/zip", "application/gzip", *(one.media_type for one in EXPORTERS.values())} - {JSON})


class ExportSessions(ApiView):
    scopes = {"GET": "export"}
    http_method_names = ["get"]

    @documented(
        "export",
        "Export",
        {(200, JSON): OpenApiTypes.ANY} | {(200, kind): OpenApiTypes.BINARY for kind in TYPES},
        asked=ExportAsked,
        description="Everything that you may export, or what the filters leave of it, as a stream in one of the "
        "formats; several files come as a zip. `jsonl` is complete and can be imported again. With `report` it is "
        "written to nowhere, and you are told what the format cannot carry.",
    )
    def get(self, request: Request) -> HttpResponseBase:
        asked = ExportAsked.of(request)
        export = _begun(request, asked)
        if asked["report"]:
            deque(export.pieces(), maxlen=0)
            return Response(export.report.to_json())
        return _stream(export)


def _begun(request: Request, asked: Mapping[str, Any]) -> Export:
    """Refuses before the first byte."""
    how = {"since": asked["since"], "compress": asked["gzip"], "reason": reason_of(request)}
    try:
        return begin(viewer_of(request), _selection(asked), asked["format"], **how)
    except NothingSelected as error:
        raise NoSuchThing from error
    except CannotExport as error:
        raise ValidationError({"since" if asked["since"] else "format": [str(error)]}) from error


def _selection(asked: Mapping[str, Any]) -> Selection:
    return Selection(sessions=tuple(asked["session"] or ()) or None, mine=asked["mine"], filters=list_filters(asked))


def _stream(export: Export) -> StreamingHttpResponse:
    """Under ASGI read as fast as it is sent: the iterator is an async one."""
    response = StreamingHttpResponse(export, content_type=export.content_type)
    response["Content-Disposition"] = f'attachment; filename="{export.file_name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response
