"""Entries of a history: frozen, typed values without Django and any vendor's format. See docs/internals/record.md."""

from history.entries.in_json import *  # noqa: F403
from history.entries.kinds import *  # noqa: F403
from history.entries.values import *  # noqa: F403
