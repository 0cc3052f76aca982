"""Errors of calls to models, as a tree: whose fault each is, and whether a retry helps.

RelayError
├── NoSuchModel          the caller names a model that no provider here offers
├── ProviderError        a call to a model failed
│   ├── RequestRefused   ours or the caller's: a retry is refused again
│   ├── AccessRefused    the operator's: key, rights or payment
│   ├── Busy             the vendor's: too many requests; a later retry works (`retry_after`)
│   ├── VendorFault      the vendor's: it failed; the same request may work at once
│   ├── Unreachable      the network's: no server answered at that address
│   └── Cut              the network's: the answer stopped in the middle
├── Unavailable          the operator's: the database is away or the server stops; a later retry works
├── OverAllowance        the user's: over a limit that staff set (`until`)
├── BudgetReserved       the user's: running answers may use up the rest of a limit; a later retry may work
└── AttachmentRefused    the user's: a file that is not accepted, or not any more (`reason`)
"""

from copy import copy
from datetime import datetime
from typing import ClassVar, Literal

from history.answers.events import AnswerFailed, ErrorKind

Whose = Literal["caller", "operator", "vendor", "network"]


class RelayError(Exception):
    """`str(error)` is a sentence for the log; pages translate by class and kind."""


class NoSuchAgent(RelayError):
    """A name that no agent has. No other agent answers instead."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"there is no agent {agent!r}")
        self.agent = agent


class NoSuchModel(RelayError):
    def __init__(self, name: str) -> None:
        super().__init__(f"no provider has a model {name!r}" if name else "no provider is configured")
        self.model = name


class ProviderError(RelayError):
    """The class says whether a retry helps; a header of the vendor may override it."""

    whose: ClassVar[Whose] = "vendor"
    retry_helps: bool = False

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        kind: ErrorKind = "server",
        status: int = 0,
        retry_after: float | None = None,
        failed: AnswerFailed | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.provider, self.kind, self.status = message, provider, kind, status
        self.retry_after = retry_after
        self.failed = failed or AnswerFailed(message=message, kind=kind, status=status)


class RequestRefused(ProviderError):
    whose = "caller"


class AccessRefused(ProviderError):
    whose = "operator"


class Busy(ProviderError):
    retry_helps = True


class VendorFault(ProviderError):
    retry_helps = True


class Unreachable(ProviderError):
    """`host` and `reason` are set if the connection failed; pages translate the reason."""

    whose = "network"
    retry_helps = True
    host: str = ""
    reason: str = ""


class Cut(ProviderError):
    whose = "network"
    retry_helps = True


_CLASS_OF_KIND: dict[str, type[ProviderError]] = {
    **dict.fromkeys(("invalid_request", "not_found", "conflict", "too_large", "context_length"), RequestRefused),
    **dict.fromkeys(("authentication", "billing", "permission"), AccessRefused),
    **dict.fromkeys(("rate_limit", "overloaded"), Busy),
    **dict.fromkeys(("server", "timeout"), VendorFault),
}


def detached(error: ProviderError) -> ProviderError:
    """A copy without the traceback, which would keep all data of the call alive."""
    return copy(error)


def error_of(failed: AnswerFailed, *, provider: str, retry_after: float | None = None) -> ProviderError:
    error_class, status = _CLASS_OF_KIND[failed.kind], failed.status
    return error_class(
        failed.message, provider=provider, kind=failed.kind, status=status, retry_after=retry_after, failed=failed
    )


class Unavailable(RelayError):
    """`retry_after` says in how many seconds it is worth trying again."""

    retry_after = 5

    def __init__(self) -> None:
        super().__init__("the database is not available")


class OverAllowance(RelayError):
    """`what` names the limit, `until` is when it resets."""

    def __init__(self, *, what: str, until: datetime) -> None:
        super().__init__(f"over the limit of {what} until {until.isoformat()}")
        self.what, self.until = what, until


class BudgetReserved(RelayError):
    """`what` names the limit of which running calls have reserved the rest."""

    def __init__(self, *, what: str) -> None:
        super().__init__(f"running calls may use up the rest of the limit of {what}")
        self.what = what


Refusal = Literal["empty", "too_large", "kind", "too_many", "not_ours", "gone", "off"]


class AttachmentRefused(RelayError):
    """Its text for users is `relay.chat.attachments.refusal_text`."""

    def __init__(self, reason: Refusal, *, name: str = "") -> None:
        super().__init__(f"attachment {name!r}: {reason}")
        self.reason, self.name = reason, name
