"""What pages of the record have in common: sessions, entries and pages of them that are served, or 404."""

from __future__ import annotations

from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.http import Http404, QueryDict
from django.utils.translation import gettext as _

from history.errors import NoSuchEntry
from history.models import Message, Session
from history.opening import NotPermitted, ReasonNeeded, find_opened
from history.rights import Viewer
from history.transcripts import Place, Transcript, read_page

LARGEST = 2**53


def session_or_404(viewer: Viewer, session_id: UUID) -> Session:
    """The session, to be read; 403 with words for who may know of it only."""
    try:
        session = find_opened(viewer, session_id)
    except NotPermitted as error:
        raise PermissionDenied(_("You may see that this session exists, but not what was said in it.")) from error
    except ReasonNeeded as error:
        raise PermissionDenied(_("This session is somebody else’s. Say why you want to read it first.")) from error
    if session is None:
        raise Http404
    return session


def message_or_404(session: Session, seq: int) -> Message:
    message = Message.objects.filter(session=session, seq=min(seq, LARGEST)).first()
    if message is None:
        raise Http404
    return message


def transcript_or_404(session: Session, asked: QueryDict) -> Transcript:
    """The page of a session that an address asks for."""
    try:
        return read_page(session, _place(asked))
    except NoSuchEntry as error:
        raise Http404 from error


def _place(asked: QueryDict) -> Place:
    return Place(
        before=_number(asked, "before"),
        after=_number(asked, "after"),
        at=_number(asked, "at"),
        leaf=_number(asked, "leaf"),
        internal=asked.get("internal") == "1",
    )


def _number(asked: QueryDict, name: str) -> int | None:
    """What is no number of an entry asks for nothing."""
    text = asked.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
