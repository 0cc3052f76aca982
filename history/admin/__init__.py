"""The admin of the history: staff read, hold, export and delete sessions, and never edit them.

`history.access.permissions` decides: `view_session` lists rows without texts, `read_session` opens messages and tool
calls with a reason. It searches with the search engine and is as fast at a million rows as at a thousand (`base`).
"""

from history.admin import access, messages, sessions

__all__ = ["access", "messages", "sessions"]
