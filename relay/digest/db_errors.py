"""Whose fault a failure is: that of what was to be stored, or that of a database which takes nothing at the moment.

A database may be there and refuse all the same: it is read-only after a change of its primary, or not migrated yet. To
give up a call for that would lose it, so only what the database says of the values themselves counts against them.
"""

from __future__ import annotations

from django.db import DatabaseError, DataError, IntegrityError, InterfaceError

OUTAGES = (DatabaseError, InterfaceError)


def is_outage(error: BaseException) -> bool:
    return isinstance(error, OUTAGES) and not isinstance(error, (DataError, IntegrityError))
