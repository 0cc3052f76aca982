"""Upload and download of attachments."""

from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from history.http import FORM_OVERHEAD, accepts_body, user_action
from history.models import Message
from history.pages.session import session_or_404
from history.text.media_types import IMAGES
from history.transcripts.previews import Attachment, find_attachment
from relay.chat.attachments import Attached, attach, most_bytes, refusal_text, tidy
from relay.errors import AttachmentRefused

LOCKED = "default-src 'none'; sandbox"  # files of other users are never run on our pages, with any content type


@accepts_body(lambda: most_bytes() * settings.PARLEY_ATTACHMENTS_PER_MESSAGE + FORM_OVERHEAD)
@user_action
def upload(request: HttpRequest) -> HttpResponse:
    """Each `file` as a chip for the form, with its name, its size and the note that names it."""
    files = [file for file in request.FILES.getlist("file") if file is not None]
    taken = [_attach(request, file, place) for place, file in enumerate(files)]
    return render(request, "chat/_attachments.html", {"attached": taken}, status=200 if files else 400)


@login_required
@require_safe
def attachment(request: HttpRequest, session_id: UUID, sha256: str) -> HttpResponse:
    session = session_or_404(request.user, session_id)
    found = find_attachment(Message.objects.of(session), sha256)
    if found is None:
        raise Http404
    # A file opened with a reason for an hour must not stay in the browser for a day.
    is_own = session.owner_id == request.user.pk
    return serve(found, cache="private, max-age=86400, immutable" if is_own else "no-store")


def serve(found: Attachment, *, cache: str) -> HttpResponse:
    """Pictures are shown; everything else is for saving, as plain bytes or plain text."""
    is_image = found.media_type in IMAGES
    kind = found.media_type or "application/octet-stream"
    kind = "text/plain; charset=utf-8" if kind.startswith("text/") else kind
    headers = {
        "Content-Disposition": content_disposition_header(not is_image, found.name) or "attachment",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": LOCKED,
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": cache,
    }
    return HttpResponse(found.content, content_type=kind, headers=headers)


def _attach(request: HttpRequest, file: UploadedFile[bytes], place: int) -> Attached:
    try:
        if place >= settings.PARLEY_ATTACHMENTS_PER_MESSAGE:
            raise AttachmentRefused("too_many")
        return attach(request.user, file)
    except AttachmentRefused as error:
        return Attached(name=tidy(file.name or ""), problem=refusal_text(error))
