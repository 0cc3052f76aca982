"""Entries of a history: frozen, typed values without Django and without any vendor's format.

An entry has a time and a kind. JSON serialisation is lossless: a field with its default value is left out, a field of
a later schema is kept in ``extra``, and an unknown kind becomes an :class:`UnknownEntry` with the input unchanged.
The type decides what may reach a model: ``history.context.messages.to_context`` takes only the union ``Renderable``.
"""

from history.entries.in_json import *  # noqa: F403
from history.entries.kinds import *  # noqa: F403
from history.entries.values import *  # noqa: F403
