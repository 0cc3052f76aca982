"""An error of a provider in words, for the people who look after them: what happened, and what to do about it."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from relay.errors import AccessRefused, Busy, Cut, ProviderError, RequestRefused, Unreachable


def what_happened(error: ProviderError) -> str:
    match error.kind:
        case "authentication":
            return _("The key was refused.")
        case "permission":
            return _("This call is not allowed.")
        case "billing":
            return _("The account has no credit left, or its limit is reached.")
        case "rate_limit":
            return _("Too many requests in a short time.")
        case "overloaded":
            return _("The provider has too much to do.")
        case "context_length" | "too_large":
            return _("That was longer than the model can read.")
        case "not_found":
            return _("There is no such model, or nothing at this address.")
        case "timeout":
            return _("There was no answer in time.")
    return _by_class(error)


def _by_class(error: ProviderError) -> str:
    if isinstance(error, Unreachable):
        return _("Nobody answered.")
    if isinstance(error, Cut):
        return _("The answer stopped in the middle.")
    if isinstance(error, RequestRefused):
        return _("The request was refused.")
    return _("The provider failed.")


def reason_of(error: ProviderError) -> str:
    """The provider's own words; in the reader's language where they are ours."""
    if isinstance(error, Unreachable) and error.host:
        return _("%(host)s cannot be reached (%(reason)s)") % {"host": error.host, "reason": _(error.reason)}
    return error.message


def what_to_do(error: ProviderError, *, variable: str = "") -> str:
    if error.kind == "authentication" and variable:
        return _("Check %(variable)s, and start Parley again.") % {"variable": variable}
    if isinstance(error, AccessRefused):
        return _("Look at the account, its key and its rights at the provider.")
    if isinstance(error, Busy):
        return _later(error.retry_after)
    if error.kind == "not_found":
        return _("Check the base URL and the name of the model.")
    if isinstance(error, Unreachable):
        return _("Check that the server runs, and that the base URL is right.")
    if isinstance(error, RequestRefused):
        return _("Try another model; if none works, the server may speak another dialect.")
    return _("Try again; if it stays so, look at the provider’s own status page.")


def _later(seconds: float | None) -> str:
    if seconds is None:
        return _("Try again in a moment.")
    minutes = max(1, round(seconds / 60))
    return ngettext("Try again in %(count)d minute.", "Try again in %(count)d minutes.", minutes) % {"count": minutes}
