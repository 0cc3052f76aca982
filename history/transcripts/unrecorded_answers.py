"""Answers that were not recorded because the API key records requests only.

Earlier answers come back with the next request and are entries without their words. Of the last one only the call
tells, so transcripts and exports can say so.
"""

from __future__ import annotations

from django.utils.translation import gettext as _

from history.entries import ModelOutput
from history.models import Exchange, Session

MODE = "no_replies"


def is_unrecorded(entry: object) -> bool:
    return isinstance(entry, ModelOutput) and entry.metadata.get("recording") == MODE


def unrecorded_text() -> str:
    return _("The reply was not kept: this key records requests only.")


def find_unrecorded_answer(session: Session) -> ModelOutput | None:
    """The unrecorded answer to the last entry; None if there is none, or it was recorded."""
    if session.source != Session.Source.RELAY:
        return None
    calls = Exchange.objects.of(session).filter(after=session.head, message=None, end_reason="done")
    for call in calls.order_by("-started_at", "-id")[:5]:
        said = call.metadata
        if (
            call.ended_at is not None
            and said.get("reply_bytes")
            and not said.get("helper")
            and not said.get("unread_reply")
        ):
            return ModelOutput(at=call.ended_at, model=call.model, metadata={"recording": MODE})
    return None
