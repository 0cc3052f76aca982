"""Summaries that programs put in the place of a long conversation: how they are known, and whose they are.

A program that names its conversation says whose. Of one that does not (Gemini CLI) only what it kept besides tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from uuid import UUID

from history.db.packing import LONG_TEXT, clean
from history.entries import Entry, ModelInput, ModelOutput, ToolResults
from history.models import Message
from history.record.fingerprints import essence_of
from relay.digest.recognisers.session_lookup import recent_sessions
from relay.digest.requests import RelayedRequest

# How they begin. People write of <summary>, too: that one has to come first.
_COMPACTED = re.compile(
    r"this session is being continued from a previous conversation|another language model started to solve"
    r"|<state_snapshot>|<conversation_summary>|\A\s*<summary>|\A\s*what did we do so far\?\s*\Z",
    re.IGNORECASE,
)
READ_CHARS = 2_000
# It stands among the first things said: after what a program tells of its surroundings, if anything.
WITHIN = 3


def is_compacted(entries: Iterable[Entry]) -> bool:
    return any(isinstance(entry, ModelInput) and _COMPACTED.search(entry.text[:READ_CHARS]) for entry in entries)


def session_of(asked: RelayedRequest) -> UUID | None:
    """The newest answer that was kept tells it, together with what that was an answer to: "Yes." is said everywhere."""
    kept = _kept(asked) if is_compacted(asked.entries[:WITHIN]) else []
    if not kept:
        return None
    ids = list(recent_sessions(asked).values_list("pk", flat=True))
    for kind, content in kept:
        said = Message.objects.filter(session_id__in=ids, kind=kind, on_path=True, content=content)
        ids = list(said.order_by("-created_at").values_list("session_id", flat=True))
    return ids[0] if ids else None


def _kept(asked: RelayedRequest) -> list[tuple[str, str]]:
    """What was said before the newest answer that has words, and that answer, as their rows tell them."""
    has_words = (place for place, entry in enumerate(asked.entries) if isinstance(entry, ModelOutput) and entry.text)
    newest = max(has_words, default=None)
    if newest is None:
        return []
    # Results of tools are shortened when there is too much of them.
    around = [entry for entry in asked.entries[max(newest - 1, 0) : newest + 1] if not isinstance(entry, ToolResults)]
    return [(entry.kind, clean(entry.text)[:LONG_TEXT]) for entry in around if essence_of(entry) is not None]
