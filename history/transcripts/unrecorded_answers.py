"""Answers that were given and not kept: where a key records requests only, the last question stands without one.

Earlier answers come back with the next request and are entries without their words. Of the last one only the call
tells, so whoever reads or exports the conversation is told by it.
"""

from __future__ import annotations

from django.utils.translation import gettext as _

from history.entries import ModelOutput
from history.models import Exchange, Session

MODE = "no_replies"


def is_without_words(entry: object) -> bool:
    return isinstance(entry, ModelOutput) and entry.metadata.get("recording") == MODE


def words() -> str:
    return _("The reply was not kept: this key records requests only.")


def unkept_answer(session: Session) -> ModelOutput | None:
    """To whatever the conversation ends with; None where there was none, or it is there."""
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
