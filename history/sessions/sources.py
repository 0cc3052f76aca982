"""Source of a session: its name and a short mark for lists."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from history.clients.programs import MARKS
from history.models import Session

# A chat of one's own is the ordinary case and has no mark.
CHAT, OTHER_CLIENT, IMPORT, NOTEBOOK = "", "API", "IM", "NB"


@dataclass(frozen=True, slots=True)
class Origin:
    """`mark` is a symbol; `name` is its text."""

    mark: str
    name: str


def origin_of(session: Session) -> Origin:
    if session.source == Session.Source.RELAY:
        return Origin(MARKS.get(session.client.lower(), OTHER_CLIENT), session.client or _("API"))
    if session.source == Session.Source.IMPORT:
        name = _("Import from %(client)s") % {"client": session.client} if session.client else _("Import")
        return Origin(IMPORT, name)
    if session.source == Session.Source.NOTEBOOK:
        return Origin(NOTEBOOK, _("Notebook"))
    return Origin(CHAT, _("Chat"))
