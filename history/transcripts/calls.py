"""Calls to models as users may see them: facts of relayed calls, and answers that were not recorded."""

from typing import Any

from django.utils.translation import gettext as _

from history.entries import ModelOutput
from history.models import Exchange, Session

FACTS = (
    *("client", "path", "helper", "streamed", "translated_to", "not_carried", "removed_session_field"),
    *("answers", "changed_results", "unread_reply", "skipped_events", "problem"),
    *("request_bytes", "reply_bytes", "lost_bytes"),
)
TRIES = ("upstream", "retried")
MODE = "no_replies"


def facts_of(exchange: Exchange, *, may_read: bool = False) -> dict[str, Any]:
    """Facts that are known. `upstream`: tried providers; `retried`: earlier tries of the client."""
    found = {name: exchange.metadata[name] for name in FACTS if name in exchange.metadata}
    for name in TRIES:
        tries = exchange.metadata.get(name, ())
        if known := [{key: one[key] for key in one if may_read or key != "error"} for one in tries]:
            found[name] = known
    return found


def is_unrecorded(entry: object) -> bool:
    return isinstance(entry, ModelOutput) and entry.metadata.get("recording") == MODE


def unrecorded_text() -> str:
    return _("The reply was not stored. This key records requests only.")


def find_unrecorded_answer(session: Session) -> ModelOutput | None:
    """The unrecorded answer to the last entry; None if there is none, or it was recorded."""
    if session.source != Session.Source.RELAY:
        return None
    calls = Exchange.objects.filter(session=session).filter(after=session.head, message=None, end_reason="done")
    for call in calls.order_by("-started_at", "-id")[:5]:
        facts = call.metadata
        has_reply = facts.get("reply_bytes") and not facts.get("helper") and not facts.get("unread_reply")
        if has_reply and call.ended_at is not None:
            return ModelOutput(at=call.ended_at, model=call.model, metadata={"recording": MODE})
    return None
