"""The page /import/: upload of files in pieces or by a form, progress of the import in the background, and report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.files.uploadedfile import TemporaryUploadedFile
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _, gettext_lazy, ngettext

from history.formats.base import Note
from history.formats.reports import level_label, note_text, translate_if_lazy, translate_sentence
from history.http import FORM_OVERHEAD, HtmxRequest, accepts_body, user_action, user_form, user_page
from history.importing import ImportOutcome, jobs
from history.models import ImportJob, Session
from history.text import whole_number
from history.text.lazy import lazy_from_json

PIECE = 2 * 1024 * 1024
LISTED = 20


@accepts_body(lambda: jobs.limit() + FORM_OVERHEAD)
@user_form
def imports(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return _page(request)
    files = request.FILES.getlist("files")
    try:
        job = _create_job(request, [file.name or "" for file in files], [file.size or 0 for file in files])
    except UploadRefused as refusal:
        messages.error(request, str(refusal))
        return _page(request, status=refusal.status)
    for place, file in enumerate(files):
        if isinstance(file, TemporaryUploadedFile):
            jobs.take_file(job, place=place, path=Path(file.temporary_file_path()))
        else:
            jobs.add_piece(job, place=place, offset=0, content=file.read())
    jobs.start(job)
    return redirect("history:import_job", job.pk)


def _page(request: HttpRequest, *, status: int = 200) -> HttpResponse:
    listed = [_job_view(job) for job in jobs.jobs_of(request.user).defer("items")[:LISTED]]
    values = {"jobs": listed, "megabytes": settings.PARLEY_IMPORT_MB, "piece": PIECE, "most": jobs.limit()}
    return render(request, "history/imports/page.html", values, status=status)


class UploadRefused(Exception):
    """The text is for the user."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


def _create_job(request: HttpRequest, names: Sequence[str], sizes: Sequence[int]) -> ImportJob:
    if not names or len(names) != len(sizes):
        raise UploadRefused(_("Choose at least one file."), status=400)
    if empty := [name for name, size in zip(names, sizes, strict=True) if not size]:
        text = _("Empty file: %(name)s. Choose the files again without it.") % {"name": empty[0]}
        raise UploadRefused(text, status=400)
    try:
        return jobs.create(request.user, list(zip(names, sizes, strict=True)))
    except jobs.UploadTooLarge:
        raise UploadRefused(_too_large(), status=413) from None
    except jobs.TooManyImports:
        text = _("Earlier uploads are not imported yet. Run or remove them first.")
        raise UploadRefused(text, status=413) from None


def _too_large() -> str:
    text = _("That is more than %(megabytes)s MB, or more than %(files)s files. Send it in parts.")
    return text % {"megabytes": settings.PARLEY_IMPORT_MB, "files": jobs.MAX_FILES}


@user_action
def begin(request: HttpRequest) -> HttpResponse:
    """Create a job from `name` and `size` of each file; the response has the URLs for the pieces."""
    try:
        sizes = [whole_number(size) or 0 for size in request.POST.getlist("size")]
        job = _create_job(request, request.POST.getlist("name"), sizes)
    except UploadRefused as refusal:
        return JsonResponse({"error": str(refusal)}, status=refusal.status)
    page, start = (reverse(f"history:import_{name}", args=[job.pk]) for name in ("job", "start"))
    pieces = reverse("history:import_piece", args=[job.pk, 0]).removesuffix("0/")
    return JsonResponse({"page": page, "pieces": pieces, "start": start})


@user_action
def piece(request: HttpRequest, job_id: UUID, place: int) -> HttpResponse:
    """Bytes of a file from `?offset=`. A response of 409 has the right offset to continue at."""
    job = get_object_or_404(jobs.jobs_of(request.user), pk=job_id)
    offset = whole_number(request.GET.get("offset"))
    if place >= len(job.files) or offset is None:
        raise Http404
    content = request.read(PIECE + 1)
    if len(content) > PIECE:
        return JsonResponse({"error": _("This part of the file is too large.")}, status=413)
    try:
        return JsonResponse({"size": jobs.add_piece(job, place=place, offset=offset, content=content)})
    except jobs.OffsetMismatch as misplaced:
        return JsonResponse({"size": misplaced.size}, status=409)
    except jobs.UploadTooLarge:
        return JsonResponse({"error": _too_large()}, status=413)


@user_action
def start(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """Start a job whose files have all arrived, or run a failed one again. The script may repeat a lost request."""
    job = get_object_or_404(jobs.jobs_of(request.user), pk=job_id)
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


@user_page
def import_job(request: HtmxRequest, job_id: UUID) -> HttpResponse:
    job = get_object_or_404(jobs.jobs_of(request.user), pk=job_id)
    template = "history/imports/_job.html" if request.htmx else "history/imports/job.html"
    return render(request, template, {"job": _job_view(job) | _report(job)})


@user_action
def remove(request: HttpRequest, job_id: UUID) -> HttpResponse:
    jobs.remove(get_object_or_404(jobs.jobs_of(request.user), pk=job_id))
    messages.success(request, _("Report removed. Imported sessions are kept."))
    return redirect("history:imports")


# Outcome → name and badge, in the order of the report: refusals first, files without conversations last.
OUTCOMES = {
    ImportOutcome.REFUSED: (gettext_lazy("refused"), "failed"),
    ImportOutcome.NOTED: (gettext_lazy("noted"), "warning"),
    ImportOutcome.IMPORTED: (gettext_lazy("imported"), "success"),
    ImportOutcome.GROWN: (gettext_lazy("grown"), "success"),
    ImportOutcome.THERE: (gettext_lazy("already there"), ""),
    ImportOutcome.IGNORED: (gettext_lazy("ignored"), ""),
}


def _job_view(job: ImportJob) -> dict[str, object]:
    is_interrupted = jobs.is_interrupted(job)
    active = (ImportJob.State.WAITING, ImportJob.State.RUNNING, ImportJob.State.UPLOADING)
    size = sum(int(file.get("size", 0)) for file in job.files)
    counts = [(str(name), job.counts.get(outcome.value, 0)) for outcome, (name, _badge) in OUTCOMES.items()]
    return {
        "pk": job.pk,
        "created_at": job.created_at,
        "files": _file_names([str(file.get("name", "")) for file in job.files]),
        "is_active": job.state in active and not is_interrupted,
        "is_uploading": job.state == ImportJob.State.UPLOADING,
        "is_interrupted": is_interrupted,
        "may_run_again": jobs.may_run_again(job),
        "state": _("interrupted") if is_interrupted else job.get_state_display(),
        "error": _(job.error) if job.error else "",
        "size": size,
        # The content of an archive is larger than its file.
        "read": size if job.state == ImportJob.State.DONE else min(job.bytes_read, size),
        "counts": [*(pair for pair in counts if pair[1]), (_("entries"), job.counts.get("entries", 0))],
    }


def _file_names(names: list[str]) -> str:
    shown, more = ", ".join(names[:3]), len(names) - 3
    if more <= 0:
        return shown
    text = ngettext("%(names)s and %(more)s more", "%(names)s and %(more)s more", more)
    return text % {"names": shown, "more": more}


def _report(job: ImportJob) -> dict[str, object]:
    """The items, repaired conversations before those without notes; `unlisted` is the number that was not stored."""
    order = {outcome.value: place for place, outcome in enumerate(OUTCOMES)}
    rows = sorted(job.items, key=lambda item: (order.get(item["outcome"], 9), not item["notes"]))
    names = [item["session"] for item in rows if item.get("session")]
    existing = Session.objects.open().filter(pk__in=names[:900]).values_list("pk", flat=True)
    linked = {str(pk) for pk in existing} | set(names[900:])
    total: int = sum(job.counts.get(outcome.value, 0) for outcome in OUTCOMES)
    return {"items": [_item(row, linked) for row in rows], "unlisted": max(total - len(job.items), 0)}


def _item(row: Mapping[str, Any], linked: set[str]) -> dict[str, object]:
    name, badge = OUTCOMES[ImportOutcome(row["outcome"])]
    notes = (
        Note(level=note["level"], what=_text(note, "what"), where=_text(note, "where"), count=note["count"])
        for note in row["notes"]
    )
    return {
        "name": name,
        "badge": badge,
        "title": translate_if_lazy(_text(row, "title")),
        **{name: row[name] for name in ("file", "format", "entries")},
        "why": translate_sentence(_text(row, "why")),
        "session": row["session"] if row["session"] in linked else None,
        "notes": [{"name": level_label(note.level), "text": note_text(note)} for note in notes],
    }


def _text(row: Mapping[str, Any], name: str) -> str:
    """The text, translatable if its parameters were stored."""
    stored = row.get("apart", {}).get(name)
    return lazy_from_json(stored) if stored else str(row[name])
