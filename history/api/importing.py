"""`/api/history/import`: one file, which is read in the background; the job says how far it is, and later the report.

The file is the body of the request, as it is: no form around it. What it is, is told by what it says, as everywhere
(docs/import.md); a zip may hold many.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse
from django.utils.translation import gettext as _
from rest_framework.exceptions import UnsupportedMediaType, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from history.api.answers import ImportAnswer
from history.api.errors import NoSuchThing, RequestTooLarge
from history.api.etags import tagged
from history.api.query import ImportAsked, QueryParameters
from history.api.schema import documented
from history.api.views import ApiView, viewer_of
from history.importing import jobs
from history.models import ApiKey, ImportJob
from history.record.recorder import refuse_when_off

CHUNK = 1_048_576
BYTES = "application/octet-stream"
FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")


class ImportFile(ApiView):
    scopes = {"POST": "import"}
    body_limit = staticmethod(jobs.limit)

    @documented(
        "import",
        "Import a file",
        ImportAnswer,
        asked=ImportAsked,
        body={BYTES: {"type": "string", "format": "binary", "minLength": 1}},
        success=202,
        statuses=(409, 413, 415),
        description="The body is the file: an export of Parley or of another product, a zip of several, packed or not. "
        "It is read in the background; the answer, and `Location`, say where to ask how far it is. Doing it again "
        "changes nothing. The sessions are your own; a key that does not see all sessions of its owner imports under "
        "itself, and touches nothing else.",
    )
    def post(self, request: Request) -> Response:
        asked = ImportAsked.of(request)
        refuse_when_off()
        if (request.content_type or "").partition(";")[0].strip().lower() in FORMS:
            raise UnsupportedMediaType(request.content_type or "")
        job = _taken(request, name=asked["name"])
        address = reverse("api:import-job", args=[job.pk])
        return Response(ImportAnswer(job).data, status=202, headers={"Location": address})


class OneImport(ApiView):
    scopes = {"GET": "import"}

    @documented(
        "read_import",
        "Read an import",
        ImportAnswer,
        asked=QueryParameters,
        path=("import_id",),
        has_tag=True,
        description="How far it is; when it is done, what became of each conversation.",
    )
    def get(self, request: Request, import_id: str) -> Response:
        QueryParameters.of(request)
        try:
            job = jobs.jobs_of(viewer_of(request)).filter(pk=UUID(import_id)).first()
        except ValueError:
            raise NoSuchThing from None
        if job is None:
            raise NoSuchThing
        return tagged(request, ImportAnswer(job).data)


def _taken(request: Request, *, name: str) -> ImportJob:
    """The file goes to the disk piece by piece, and then to where its job looks for it."""
    with NamedTemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR, delete=False) as file:
        path = Path(file.name)
        try:
            size = _copied(request._request, file)
            if not size:
                raise ValidationError({"body": [_("There is nothing in it.")]})
            job = jobs.create(request.user, [(name, size)], api_key=_key_of(request))
            jobs.take_file(job, place=0, path=path)
        except jobs.UploadTooLarge as error:
            raise RequestTooLarge(_too_large()) from error
        except jobs.TooMany as error:
            raise RequestTooLarge(_("Too much that you sent before is not imported yet.")) from error
        finally:
            path.unlink(missing_ok=True)
    jobs.start(job)
    return job


def _key_of(request: Request) -> ApiKey | None:
    return request.auth if isinstance(request.auth, ApiKey) else None


def _copied(source: Any, target: IO[bytes]) -> int:
    size = 0
    while content := source.read(CHUNK):
        size += len(content)
        if size > jobs.limit():
            raise RequestTooLarge(_too_large())
        target.write(content)
    target.flush()
    return size


def _too_large() -> str:
    return _("That is more than %(megabytes)s MB: send it in parts.") % {"megabytes": settings.PARLEY_IMPORT_MB}
