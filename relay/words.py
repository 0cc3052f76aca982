"""What is said to a person when something did not work: what happened, and what to do about it."""

from __future__ import annotations

from django.utils.translation import gettext as _

from history.errors import HistoryError, HistoryOff, NoSuchBlob, NoSuchEntry
from history.opening import NotPermitted, ReasonNeeded
from relay import attachments
from relay.allowances import told
from relay.errors import (
    AccessRefused,
    AttachmentRefused,
    Busy,
    NoSuchModel,
    OverAllowance,
    ProviderError,
    RelayError,
    Unavailable,
)
from relay.providers.advice import reason_of


def of_error(error: RelayError | HistoryError) -> str:
    match error:
        case OverAllowance():
            return told(error)
        case NoSuchModel() if error.model:
            return _("Nobody here offers the model “%(name)s”. Pick another one.") % {"name": error.model}
        case NoSuchModel():
            return _("No model is set up on this server. Ask whoever looks after it.")
        case Busy():
            return _("The provider has too much to do. Try again in a moment, or pick another model.")
        case AccessRefused():
            return _("The provider refused this server’s key. Ask whoever looks after it.")
        case ProviderError():
            return _("The provider did not answer as it should: %(reason)s") % {"reason": reason_of(error)[:500]}
        case AttachmentRefused():
            return attachments.told(error)
        case Unavailable():
            return _("The database is not available at the moment. Try again in a few seconds.")
        case HistoryOff():
            return _("History is off on this server, so nothing new is taken.")
        case NoSuchEntry():
            return _("What this refers to is not there any more. Reload the page.")
        case NotPermitted():
            return _("You may see that this session exists, but not what was said in it.")
        case ReasonNeeded():
            return _("This session is somebody else’s. Say why you want to read it first.")
        case NoSuchBlob():
            return _("An attachment is not there any more. Attach it again.")
    return str(error)
