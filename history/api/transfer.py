"""REST: export of sessions as a stream, and import of a file that is read in the background."""

from collections import deque
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import reverse
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import UnsupportedMediaType, ValidationError
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from history.api.base import ApiView, key_of, reason_of, tagged, viewer_of
from history.api.errors import RequestTooLarge, ResourceNotFound
from history.api.parameters import ExportParameters, ImportParameters, filters_in
from history.api.schema import documented
from history.api.serializers import ImportSerializer
from history.entries import JsonObject
from history.exporting import CannotExport, Export, NothingSelected, Selection, begin
from history.formats.writers import EXPORTERS
from history.http import download
from history.importing import jobs
from history.models import ImportJob
from history.record.recorder import refuse_when_off

JSON, BYTES = "application/json", "application/octet-stream"
EXPORT_TYPES = sorted({"application/zip", "application/gzip", *(one.media_type for one in EXPORTERS.values())} - {JSON})
EXPORTED = {(200, JSON): OpenApiTypes.ANY} | {(200, kind): OpenApiTypes.BINARY for kind in EXPORT_TYPES}
FILE: dict[str, object] = {BYTES: {"type": "string", "format": "binary", "minLength": 1}}
FORM_TYPES = ("multipart/form-data", "application/x-www-form-urlencoded")
CHUNK = 1_048_576


class ExportSessions(ApiView):
    scopes = {"GET": "export"}
    http_method_names = ["get"]

    @documented("export", "Export", EXPORTED, ExportParameters)
    def get(self, request: Request) -> HttpResponseBase:
        """Stream all sessions that you may export and that match the filters, in one of the formats. Several files are
        sent as a ZIP archive. `jsonl` is complete and can be imported again. With `report`, the response is only the
        report of what the format cannot contain.
        """
        export = _begin(request, self.parameters)
        if self.parameters["report"]:
            deque(export.pieces(), maxlen=0)
            return Response(asdict(export.report))
        return download(export)


def _begin(request: Request, parameters: JsonObject) -> Export:
    """Refuses before the first byte."""
    selection = Selection(
        sessions=tuple(parameters["session"] or ()) or None,
        mine=parameters["mine"],
        filters=filters_in({**parameters, "session": None}),
    )
    viewer, since, reason = viewer_of(request), parameters["since"], reason_of(request)
    try:
        return begin(viewer, selection, parameters["format"], since=since, compress=parameters["gzip"], reason=reason)
    except NothingSelected as error:
        raise ResourceNotFound from error
    except CannotExport as error:
        raise ValidationError({"since" if since else "format": [str(error)]}) from error


class ImportFile(ApiView):
    """The body is the file itself, without a form. Its format is detected (docs/import.md); a zip may hold many."""

    scopes = {"POST": "import"}
    body_limit = staticmethod(jobs.limit)

    @documented(
        "import", "Import a file", ImportSerializer, ImportParameters, body=FILE, success=202, statuses=(409, 413, 415)
    )
    def post(self, request: Request) -> Response:
        """Send a file as the body: an export of Parley or of another product, or a ZIP archive of several files. The
        import runs in the background; `Location` is the URL of its progress. Importing the same file again changes
        nothing. The sessions belong to you. If the key does not see all sessions of its owner, the sessions are
        recorded with this key, and other sessions are not changed.
        """
        refuse_when_off()
        if (request.content_type or "").partition(";")[0].strip().lower() in FORM_TYPES:
            raise UnsupportedMediaType(request.content_type or "")
        job = _create_job(request, name=self.parameters["name"])
        location = reverse("api:import-job", args=[job.pk])
        return Response(ImportSerializer(job).data, status=202, headers={"Location": location})


class OneImport(ApiView):
    scopes = {"GET": "import"}

    @documented("read_import", "Read an import", ImportSerializer, has_tag=True)
    def get(self, request: Request, import_id: str) -> Response:
        """Progress of an import and, when it is done, the outcome of each conversation."""
        job = get_object_or_404(jobs.jobs_of(viewer_of(request)), pk=import_id)
        return tagged(request, ImportSerializer(job).data)


def _create_job(request: Request, *, name: str) -> ImportJob:
    with NamedTemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR, delete=False) as file:
        path = Path(file.name)
        try:
            size = _copy(request._request, file)
            if not size:
                raise ValidationError({"body": [_("The body is empty.")]})
            job = jobs.create(request.user, [(name, size)], api_key=key_of(request))
            jobs.take_file(job, place=0, path=path)
        except jobs.UploadTooLarge as error:
            text = _("More than %(megabytes)s MB. Send it in parts.")
            raise RequestTooLarge(text % {"megabytes": settings.PARLEY_IMPORT_MB}) from error
        except jobs.TooManyImports as error:
            raise RequestTooLarge(_("Earlier uploads are still being imported. Try again later.")) from error
        finally:
            path.unlink(missing_ok=True)
    jobs.start(job)
    return job


def _copy(source: HttpRequest, target: IO[bytes]) -> int:
    size = 0
    while content := source.read(CHUNK):
        size += len(content)
        if size > jobs.limit():
            raise jobs.UploadTooLarge
        target.write(content)
    target.flush()
    return size
