"""/import/: files from other products. They are sent piece by piece with a script, or all at once without one.

The import itself runs in the background: its page shows how far it is, and later the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import TemporaryUploadedFile, UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from history.http.body_limits import FORM_OVERHEAD, accepts_body
from history.http.htmx import HtmxRequest
from history.importing import jobs
from history.models import ImportJob
from history.pages.imports.report import shown
from history.text.numbers import whole_number

PIECE = 2 * 1024 * 1024
LISTED = 20


@accepts_body(lambda: jobs.limit() + FORM_OVERHEAD)
@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def imports(request: HttpRequest) -> HttpResponse:
    """The page; with files in a form, a new job."""
    if request.method == "POST":
        return _sent_at_once(request)
    return _page(request)


def _page(request: HttpRequest, *, status: int = 200) -> HttpResponse:
    listed = [shown(job) for job in jobs.jobs_of(request.user).defer("items")[:LISTED]]
    values = {"jobs": listed, "megabytes": settings.PARLEY_IMPORT_MB, "piece": PIECE, "most": jobs.limit()}
    return render(request, "history/imports/page.html", values, status=status)


def _sent_at_once(request: HttpRequest) -> HttpResponse:
    files = [file for file in request.FILES.getlist("files") if file is not None]
    if problem := _problem_of_files([file.name or "" for file in files], [file.size or 0 for file in files]):
        messages.error(request, problem)
        return _page(request, status=400)
    try:
        job = jobs.create(request.user, [(file.name or "", file.size or 0) for file in files])
    except jobs.UploadTooLarge:
        messages.error(request, _too_large())
        return _page(request, status=413)
    except jobs.TooMany:
        messages.error(request, _too_many())
        return _page(request, status=413)
    for place, file in enumerate(files):
        _keep(job, place, file)
    jobs.start(job)
    return redirect("history:import_job", job.pk)


def _keep(job: ImportJob, place: int, file: UploadedFile[bytes]) -> None:
    if isinstance(file, TemporaryUploadedFile):
        jobs.take_file(job, place=place, path=Path(file.temporary_file_path()))
        return
    jobs.add_piece(job, place=place, offset=0, content=file.read())


def _problem_of_files(names: Sequence[str], sizes: Sequence[int]) -> str:
    if not names or len(names) != len(sizes):
        return _("Choose at least one file.")
    empty = [name for name, size in zip(names, sizes, strict=True) if not size]
    if not empty:
        return ""
    return _("Empty file: %(name)s. Choose the files again without it.") % {"name": empty[0]}


def _too_large() -> str:
    words = _("That is more than %(megabytes)s MB, or more than %(files)s files. Send it in parts.")
    return words % {"megabytes": settings.PARLEY_IMPORT_MB, "files": jobs.MAX_FILES}


def _too_many() -> str:
    return _("Too much that you sent before is not imported yet. Run it again or remove it first.")


# Piece by piece.


@login_required
@require_POST
def begin(request: HttpRequest) -> HttpResponse:
    """`name` and `size` of each file; the answer says where the pieces go."""
    sizes = [
        int(size) if size.isascii() and size.isdigit() and len(size) < 16 else 0
        for size in request.POST.getlist("size")
    ]
    names = request.POST.getlist("name")
    if problem := _problem_of_files(names, sizes):
        return JsonResponse({"error": problem}, status=400)
    try:
        job = jobs.create(request.user, list(zip(names, sizes, strict=True)))
    except jobs.UploadTooLarge:
        return JsonResponse({"error": _too_large()}, status=413)
    except jobs.TooMany:
        return JsonResponse({"error": _too_many()}, status=413)
    return JsonResponse(
        {
            "page": reverse("history:import_job", args=[job.pk]),
            "pieces": reverse("history:import_piece", args=[job.pk, 0]).removesuffix("0/"),
            "start": reverse("history:import_start", args=[job.pk]),
        }
    )


@login_required
@require_POST
def piece(request: HttpRequest, job_id: UUID, place: int) -> HttpResponse:
    """The bytes of a file from `?offset=` on. 409 says how far it really is, to go on from there."""
    job = _job_or_404(request, job_id)
    offset = whole_number(request.GET.get("offset"))
    if place >= len(job.files) or offset is None:
        raise Http404
    content = request.read(PIECE + 1)
    if len(content) > PIECE:
        return JsonResponse({"error": _("That piece is too large.")}, status=413)
    try:
        return JsonResponse({"size": jobs.add_piece(job, place=place, offset=offset, content=content)})
    except jobs.Misplaced as misplaced:
        return JsonResponse({"size": misplaced.size}, status=409)
    except jobs.UploadTooLarge:
        return JsonResponse({"error": _too_large()}, status=413)


@login_required
@require_POST
def start(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Start a job whose files have all arrived, or run a failed one again. The script gets JSON, a form a redirect.

    Starting a job that is already started is no error: the script repeats a request whose answer was lost.
    """
    job = _job_or_404(request, job_id)
    wants_json = request.get_preferred_type(["text/html", "application/json"]) == "application/json"
    is_sent = job.state == ImportJob.State.UPLOADING and jobs.is_whole(job)
    is_started = wants_json and job.state != ImportJob.State.UPLOADING
    if is_sent or (not is_started and jobs.may_run_again(job)):
        jobs.start(job)
    elif not is_started:
        problem = _("Some files have not arrived. Send them again.")
        if wants_json:
            return JsonResponse({"error": problem}, status=409)
        messages.error(request, problem)
    if wants_json:
        return JsonResponse({"page": reverse("history:import_job", args=[job.pk])})
    return redirect("history:import_job", job.pk)


# How it goes.


@login_required
@never_cache
@require_safe
def import_job(request: HtmxRequest, job_id: UUID) -> HttpResponse:
    job = _job_or_404(request, job_id)
    return render(request, f"history/imports/{'_job' if request.htmx else 'job'}.html", {"job": shown(job)})


@login_required
@require_POST
def remove(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """The job and its files; what was imported stays."""
    job = _job_or_404(request, job_id)
    jobs.remove(job)
    messages.success(request, _("The report is gone. What was imported stays."))
    return redirect("history:imports")


def _job_or_404(request: HttpRequest, job_id: UUID) -> ImportJob:
    job = jobs.jobs_of(request.user).filter(pk=job_id).first()
    if job is None:
        raise Http404
    return job
