"""What pages of the record have in common: sessions, entries and pages of them that are served, or 404."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, QueryDict

from history.access.permissions import Viewer
from history.access.reasons import find_opened
from history.errors import NoSuchEntry
from history.models import Message, Session
from history.text.numbers import whole_number
from history.transcripts.page import Transcript, TranscriptPosition, read_page

LARGEST = 2**53


def session_or_404(viewer: Viewer, session_id: UUID) -> Session:
    """The session, to be read. Whoever may know of it only, or has to say why first, is answered by `views.opening`."""
    session = find_opened(viewer, session_id)
    if session is None:
        raise Http404
    return session


def message_or_404(session: Session, seq: int) -> Message:
    message = Message.objects.at(session, min(seq, LARGEST)).first()
    if message is None:
        raise Http404
    return message


def transcript_or_404(session: Session, asked: QueryDict) -> Transcript:
    """The page of a session that an address asks for."""
    try:
        return read_page(session, _place(asked))
    except NoSuchEntry as error:
        raise Http404 from error


def _place(asked: QueryDict) -> TranscriptPosition:
    return TranscriptPosition(
        before=number_in(asked, "before"),
        after=number_in(asked, "after"),
        at=number_in(asked, "at"),
        leaf=number_in(asked, "leaf"),
        internal=asked.get("internal") == "1",
    )


def number_in(asked: QueryDict, name: str) -> int | None:
    """What is no number of an entry asks for nothing."""
    return whole_number(asked.get(name))
