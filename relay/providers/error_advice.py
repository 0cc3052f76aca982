"""Provider errors in words, by reader: what happened, and what a user or a staff member can do about it.

A provider's own text is for staff only: it may name accounts, projects and keys of this server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from django.utils.translation import gettext as _, gettext_noop, ngettext

from history.answers.events import AnswerFailed, ErrorKind
from relay.errors import AccessRefused, Busy, Cut, ProviderError, RequestRefused, Unreachable, error_of

_TEXT_OF_KIND: dict[ErrorKind, str] = {
    "authentication": gettext_noop("The key was refused."),
    "permission": gettext_noop("The provider does not allow this call."),
    "billing": gettext_noop("The account has no credit left or reached its limit."),
    "rate_limit": gettext_noop("Too many requests in a short time."),
    "overloaded": gettext_noop("The provider is overloaded."),
    "context_length": gettext_noop("The conversation is too long for the model."),
    "too_large": gettext_noop("The conversation is too long for the model."),
    "not_found": gettext_noop("The model or the address does not exist."),
    "timeout": gettext_noop("The provider took too long."),
}
_TEXT_OF_CLASS = {
    Unreachable: gettext_noop("The provider did not answer."),
    Cut: gettext_noop("The answer was interrupted."),
    RequestRefused: gettext_noop("The provider refused the request."),
}
_REPORTED = gettext_noop("The provider reported an error.")


def error_summary(error: ProviderError) -> str:
    return _(_TEXT_OF_KIND.get(error.kind) or _TEXT_OF_CLASS.get(type(error), _REPORTED))


def reason_of(error: ProviderError) -> str:
    """The provider's own words; in the reader's language where they are ours."""
    if isinstance(error, Unreachable) and error.host:
        return _("%(host)s cannot be reached (%(reason)s)") % {"host": error.host, "reason": _(error.reason)}
    return error.message


def advice_for_staff(error: ProviderError, *, variable: str = "") -> str:
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


@dataclass(frozen=True, slots=True)
class ErrorAdvice:
    """`reason` is the provider's own text, with keys masked; empty for users."""

    what: str
    todo: str
    reason: str = ""


def describe_error(error: ProviderError, *, is_staff: bool, variable: str = "") -> ErrorAdvice:
    if is_staff:
        return ErrorAdvice(error_summary(error), advice_for_staff(error, variable=variable), reason_of(error)[:500])
    if isinstance(error, AccessRefused):
        return ErrorAdvice(
            _("This server’s account at the provider does not work."),
            _("Choose another model, or contact your administrator."),
        )
    if isinstance(error, Cut):  # beside it the page says already that the answer was cut short
        what = _("The connection to the provider was lost.")
    elif error.kind == "not_found":  # addresses are the business of staff
        what = _("The provider does not offer this model at the moment.")
    else:
        what = error_summary(error)
    return ErrorAdvice(what, advice_for_user(error))


def advice_for_user(error: ProviderError) -> str:
    if isinstance(error, Busy):
        return " ".join([_later(error.retry_after), _("You can also choose another model.")])
    if error.kind in ("context_length", "too_large"):
        return _("Shorten the message, summarise older ones, or choose another model.")
    if isinstance(error, RequestRefused):
        return _("Choose another model. If it still fails, contact your administrator.")
    return _("Try again, or choose another model. If it still fails, contact your administrator.")


def error_facts(error: ProviderError) -> dict[str, Any]:
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
    return error_of(AnswerFailed(message=message, kind=kind), provider=provider, retry_after=seconds)
