"""Receiver of `session_changed`: open pages are updated, and the answers of a deleted session are stopped.

Apart from the views, because every command connects it.
"""

import logging

from history.models import Session
from relay.live import groups

logger = logging.getLogger(__name__)


def notify_pages(session: Session) -> None:
    """Update other pages of the owner and pages that show the session."""
    groups.notify_sidebar(session.owner_id, session.pk)
    groups.notify_session(session.pk)


def on_session_changed(session: Session, what: str, **_signal: object) -> None:
    """Stop the answers of a session that is deleted, else update open pages. An error must not undo the change."""
    try:
        if what == "deleting":
            from relay.live import runs  # with the agents and the HTTP client, which few commands need

            runs.request_stop_in_session(session.pk)
        else:
            notify_pages(session)
    except Exception:
        logger.exception("Open pages were not notified that session %s was %s.", session.pk, what)
