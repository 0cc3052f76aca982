"""Errors of the history, as a tree.

    HistoryError
    ├── HistoryOff        the operator switched recording off; reading still works
    ├── NoSuchEntry       the session or entry does not exist, or not any more
    ├── PairingError      the results do not answer the calls before them, one to one
    ├── NoSuchBlob        the bytes of a named attachment are not stored
    ├── NotPermitted      the viewer may list the session, but not do this (access.reasons)
    ├── ReasonNeeded      another user's session: give a reason first (access.reasons)
    ├── UnderHold, BeingRemoved        the session cannot be removed, or cannot stay (retention)
    └── SharingOff, TooManyLinks       no more links now (transcripts.share_links)

A write that raises one of these has stored nothing (a fork: nothing that is shown). A retry does not help.
"""


class HistoryError(Exception):
    pass


class HistoryOff(HistoryError):
    pass


class NoSuchEntry(HistoryError):
    pass


class PairingError(HistoryError):
    pass


class NoSuchBlob(HistoryError):
    pass


class CannotLink(HistoryError):
    pass
