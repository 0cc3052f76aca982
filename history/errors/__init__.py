"""Errors of the history: base class, and those that several packages raise.

A write that raises one of these has stored nothing (a fork: nothing that is shown). A retry does not help.
"""


class HistoryError(Exception):
    """Packages add their own below this class, such as `access.reasons.NotPermitted` and `retention.UnderHold`."""


class HistoryOff(HistoryError):
    """The operator switched recording off; reading still works."""


class NoSuchEntry(HistoryError):
    """The session or entry does not exist, or not any more."""


class PairingError(HistoryError):
    """The results do not answer the calls before them, one to one."""


class NoSuchBlob(HistoryError):
    """The bytes of a named attachment are not stored."""
