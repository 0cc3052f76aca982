"""The record for staff, in Django's admin: to look at, to hold, to delete; never to edit.

It follows the same rights as everything else (`history.access.permissions`): `view_session` lists what has no text,
`read_session` opens messages and tool calls, for a reason. It searches with the search engine, counts no further than
it has to, and stays as quick at a million rows as at a thousand (`looking` says how).
"""

from history.admin import audit, exchanges, keys, messages, sessions

__all__ = ["audit", "exchanges", "keys", "messages", "sessions"]
