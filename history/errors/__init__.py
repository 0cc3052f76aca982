"""What can go wrong with the record, as a tree that says whose fault it is.

    HistoryError
    ├── HistoryOff        the operator switched recording off; nothing is written, reading goes on
    ├── NoSuchEntry       the caller names a session or an entry that is not there (any more)
    ├── PairingError      the caller's results do not answer the calls before them, one to one
    ├── NoSuchBlob        the caller names an attachment whose bytes were never stored
    ├── NotPermitted      the caller may know of the session, but not do this with it (opening)
    ├── ReasonNeeded      the session is somebody else's: the caller has to say why first (opening)
    ├── UnderHold, BeingRemoved        the session cannot go, or cannot stay (retention)
    └── SharingOff, TooManyLinks       no more links for now (sharing)

A write that raises one of these has stored nothing (a fork: nothing that anybody is served). Trying again as it is does
not help.
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
