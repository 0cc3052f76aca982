"""Error texts for users: what happened, and what to do."""

from django.utils.translation import gettext as _

from history.access.reasons import NotPermitted, ReasonNeeded
from history.errors import HistoryError, HistoryOff, NoSuchBlob, NoSuchEntry
from relay import errors
from relay.chat import attachments
from relay.providers.error_advice import describe_error
from relay.usage.allowances import over_allowance_text, reserved_text


def error_text(error: errors.RelayError | HistoryError) -> str:
    match error:
        case errors.OverAllowance():
            return over_allowance_text(error)
        case errors.BudgetReserved():
            return reserved_text(error)
        case errors.NoSuchAgent():
            return _("The agent “%(name)s” does not exist. Choose another one.") % {"name": error.agent[:100]}
        case errors.NoSuchModel() if error.model:
            return _("The model “%(name)s” is not available. Choose another one.") % {"name": error.model}
        case errors.NoSuchModel():
            return _("No model is configured. Contact your administrator.")
        case errors.ProviderError():
            advice = describe_error(error, is_staff=False)
            return f"{advice.what} {advice.todo}"
        case errors.AttachmentRefused():
            return attachments.refusal_text(error)
        case errors.Unavailable():
            return _("The database is not available at the moment. Try again in a few seconds.")
        case HistoryOff():
            return _("History is off on this server. New messages are not accepted.")
        case NoSuchEntry():
            return _("This no longer exists. Reload the page.")
        case NotPermitted():
            return _("You can see that this session exists, but you cannot read it.")
        case ReasonNeeded():
            return _("This session belongs to another user. Give a reason to read it first.")
        case NoSuchBlob():
            return _("An attachment is no longer available. Attach it again.")
    return str(error)


def queue_error_text(code: str) -> str:
    """Why a message of the queue was not sent, by the class of its error (`QueuedMessage.error`)."""
    match code:
        case "Interrupted":
            return _("The server stopped before it finished. Send it again if needed.")
        case "NoSuchAgent":
            return _("Its agent no longer exists. Choose another one and send again.")
        case "NoSuchModel":
            return _("Its model is not available. Choose another one and send again.")
        case "AttachmentRefused" | "NoSuchBlob":
            return _("An attachment is no longer available. Attach it again.")
        case "OverAllowance":
            return _("Your allowance is used up. Send it later.")
    return _("The message was refused. Send it again or discard it.")
