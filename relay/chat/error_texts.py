"""What is said to a person when something did not work: what happened, and what to do about it."""

from __future__ import annotations

from django.utils.translation import gettext as _

from history.access.reasons import NotPermitted, ReasonNeeded
from history.errors import HistoryError, HistoryOff, NoSuchBlob, NoSuchEntry
from relay.chat import attachments
from relay.errors import (
    AttachmentRefused,
    BudgetReserved,
    NoSuchAgent,
    NoSuchModel,
    OverAllowance,
    ProviderError,
    RelayError,
    Unavailable,
)
from relay.providers.advice import advise
from relay.usage.allowances import reserved_text, told


def of_error(error: RelayError | HistoryError) -> str:
    match error:
        case OverAllowance():
            return told(error)
        case BudgetReserved():
            return reserved_text(error)
        case NoSuchAgent():
            return _("Agent “%(name)s” does not exist. Choose another one.") % {"name": error.agent[:100]}
        case NoSuchModel() if error.model:
            return _("Model “%(name)s” is not available. Choose another one.") % {"name": error.model}
        case NoSuchModel():
            return _("No model is set up on this server. Tell your administrator.")
        case ProviderError():
            advice = advise(error, is_staff=False)
            return f"{advice.what} {advice.todo}"
        case AttachmentRefused():
            return attachments.told(error)
        case Unavailable():
            return _("The database is not available at the moment. Try again in a few seconds.")
        case HistoryOff():
            return _("History is off on this server, so nothing new is taken.")
        case NoSuchEntry():
            return _("What this refers to is not there any more. Reload the page.")
        case NotPermitted():
            return _("You can see that this session exists, but you cannot read it.")
        case ReasonNeeded():
            return _("This session belongs to another user. Give a reason to read it first.")
        case NoSuchBlob():
            return _("An attachment is not there any more. Attach it again.")
    return str(error)


def of_queue_error(code: str) -> str:
    """Why a message of the queue was not sent, by the class of its error (`QueuedMessage.error`)."""
    match code:
        case "Interrupted":
            return _("The server stopped in the middle. Send it again if it is still needed.")
        case "NoSuchAgent":
            return _("Its agent does not exist any more. Send it again to another one.")
        case "NoSuchModel":
            return _("Its model is not available. Send it again with another one.")
        case "AttachmentRefused" | "NoSuchBlob":
            return _("An attachment is not there any more. Attach it again.")
        case "OverAllowance":
            return _("Your allowance is used up. Send it later.")
    return _("It was refused. Send it again, or drop it.")
