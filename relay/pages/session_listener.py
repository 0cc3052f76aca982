"""What becomes of a session elsewhere, over REST or on the pages of the record, and what that means for the chat."""

from __future__ import annotations

import logging

from history.models import Session
from history.sessions.actions import What
from relay.live import runs
from relay.pages.sidebar.views import tell

logger = logging.getLogger(__name__)


def session_changed(session: Session, what: What) -> None:
    """Stop what is being answered where it goes; open pages show the rest. Not hearing of it must not undo it."""
    try:
        if what == "deleting":
            runs.request_stop_in_session(session.pk)
        else:
            tell(session)
    except Exception:
        logger.exception("Open pages were not told that session %s was %s.", session.pk, what)
