"""Provider errors in words, by reader: what happened, and what a user or a staff member can do about it.

A provider's own text is for staff only: it may name accounts, projects and keys of this server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from history.answers.events import ErrorKind, Failed
from relay.errors import AccessRefused, Busy, Cut, ProviderError, RequestRefused, Unreachable, error_of


def what_happened(error: ProviderError) -> str:
    match error.kind:
        case "authentication":
            return _("The key was refused.")
        case "permission":
            return _("The provider does not allow this call.")
        case "billing":
            return _("The account has no credit left or reached its limit.")
        case "rate_limit":
            return _("Too many requests in a short time.")
        case "overloaded":
            return _("The provider is overloaded.")
        case "context_length" | "too_large":
            return _("The conversation is too long for the model.")
        case "not_found":
            return _("The model or the address does not exist.")
        case "timeout":
            return _("The provider took too long.")
    return _by_class(error)


def _by_class(error: ProviderError) -> str:
    if isinstance(error, Unreachable):
        return _("The provider did not answer.")
    if isinstance(error, Cut):
        return _("The answer was interrupted.")
    if isinstance(error, RequestRefused):
        return _("The provider refused the request.")
    return _("The provider reported an error.")


def reason_of(error: ProviderError) -> str:
    """The provider's own words; in the reader's language where they are ours."""
    if isinstance(error, Unreachable) and error.host:
        return _("%(host)s cannot be reached (%(reason)s)") % {"host": error.host, "reason": _(error.reason)}
    return error.message


def what_to_do(error: ProviderError, *, variable: str = "") -> str:
    if error.kind == "authentication" and variable:
        return _("Check %(variable)s and restart Parley.") % {"variable": variable}
    if isinstance(error, AccessRefused):
        return _("Check the account, key and permissions at the provider.")
    if isinstance(error, Busy):
        return _later(error.retry_after)
    if error.kind == "not_found":
        return _("Check the base URL and the name of the model.")
    if isinstance(error, Unreachable):
        return _("Check that the server runs and the base URL is right.")
    if isinstance(error, RequestRefused):
        return _("Try another model. If none works, the server may use another dialect.")
    return _("Try again. If it still fails, see the provider’s status page.")


def _later(seconds: float | None) -> str:
    if seconds is None:
        return _("Try again in a moment.")
    minutes = max(1, round(seconds / 60))
    return ngettext("Try again in %(count)d minute.", "Try again in %(count)d minutes.", minutes) % {"count": minutes}


# By reader.


@dataclass(frozen=True, slots=True)
class Advice:
    """`reason` is the provider's own text, with keys masked; empty for users."""

    what: str
    todo: str
    reason: str = ""


def advise(error: ProviderError, *, is_staff: bool, variable: str = "") -> Advice:
    if is_staff:
        return Advice(what_happened(error), what_to_do(error, variable=variable), reason_of(error)[:500])
    if isinstance(error, AccessRefused):
        return Advice(
            _("This server’s account at the provider does not work."),
            _("Choose another model, or contact your administrator."),
        )
    return Advice(_what_a_user_reads(error), what_a_user_can_do(error))


def _what_a_user_reads(error: ProviderError) -> str:
    if isinstance(error, Cut):  # beside it the page says already that the answer was cut short
        return _("The connection to the provider was lost.")
    if error.kind == "not_found":  # addresses are the business of staff
        return _("The provider does not offer this model at the moment.")
    return what_happened(error)


def what_a_user_can_do(error: ProviderError) -> str:
    if isinstance(error, Busy):
        return " ".join([_later(error.retry_after), _("You can also choose another model.")])
    if error.kind in ("context_length", "too_large"):
        return _("Shorten the message, summarise older ones, or choose another model.")
    if isinstance(error, RequestRefused):
        return _("Choose another model. If it still fails, contact your administrator.")
    return _("Try again, or choose another model. If it still fails, contact your administrator.")


# As it is kept with a failed answer.


def failure_of(error: ProviderError) -> dict[str, Any]:
    """The facts from which `error_from` makes the same error again."""
    network = "cut" if isinstance(error, Cut) else "unreachable" if isinstance(error, Unreachable) else ""
    facts = {"kind": error.kind, "status": error.status, "retry_after": error.retry_after, "network": network}
    return {name: value for name, value in facts.items() if value}


def error_from(failure: Mapping[str, Any], *, message: str, provider: str = "") -> ProviderError:
    """Of stored facts, which other versions of Parley or an import may have written."""
    network = {"cut": Cut, "unreachable": Unreachable}.get(str(failure.get("network")))
    kind: ErrorKind = next((known for known in get_args(ErrorKind) if known == failure.get("kind")), "server")
    if network is not None:
        return network(message, provider=provider, kind=kind)
    retry_after = failure.get("retry_after")
    seconds = float(retry_after) if isinstance(retry_after, int | float) else None
    return error_of(Failed(message=message, kind=kind), provider=provider, retry_after=seconds)
