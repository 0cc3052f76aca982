"""Lint steps of a stored session, before any repair."""

from __future__ import annotations

from history.context import Snapshot
from history.context.entries import ContextEntry, Role
from history.context.summaries import masked_results, pieces_of
from history.context.turns import messages_of
from history.entries import Media, Text, ToolRequest
from history.linting.walker import LintWalk, weight_of


def walk_of(snapshot: Snapshot) -> LintWalk:
    walk = LintWalk("")
    masked = masked_results(snapshot.nodes)
    for entry in messages_of(pieces_of(snapshot), masked, session_id=snapshot.session_id, remarks=[]):
        walk.message += 1
        _look(walk, entry)
    for tool in snapshot.tools:
        walk.offer(tool.name, "tools")
    return walk


def _look(walk: LintWalk, entry: ContextEntry) -> None:
    place = f"#{entry.seq}"
    walk.speaker = "model" if entry.role is Role.MODEL_OUTPUT else "system" if entry.role is Role.SYSTEM else "user"
    for result in entry.results:
        walk.result(place, call_id=result.call_id, name=result.name)
    for part in entry.parts:
        if isinstance(part, ToolRequest) and walk.speaker == "model":
            walk.call(place, call_id=part.call_id, name=part.name)
        elif isinstance(part, Text):
            walk.say(place, weight=weight_of(part.text))
        else:
            walk.say(place, weight=2 if isinstance(part, Media) else 0)
