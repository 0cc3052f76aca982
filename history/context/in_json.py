"""Contexts as JSON, in the words of our entries: to be shown, kept and compared."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from history.context.entries import ContextEntry
from history.context.values import RENDERER_VERSION, Context
from history.entries import ModelInput, ToolResults, ToolsOffered, entry_to_json

_NO_TIME = datetime.fromtimestamp(0, UTC)


def entry_view(entry: ContextEntry) -> dict[str, Any]:
    """A message in the JSON of our entries."""
    written: dict[str, Any] = {"role": entry.role.value, "origin": list(entry.origin)}
    if entry.parts:
        written["parts"] = entry_to_json(ModelInput(at=_NO_TIME, parts=entry.parts))["parts"]
    if entry.results:
        written["results"] = entry_to_json(ToolResults(at=_NO_TIME, results=entry.results))["results"]
    if entry.live_screen is not None:
        written["live_screen"] = entry.live_screen
    return written


def context_to_json(context: Context) -> dict[str, Any]:
    return {
        "renderer": RENDERER_VERSION,
        "system": context.system,
        "tools": entry_to_json(ToolsOffered(at=_NO_TIME, tools=context.tools)).get("tools", []),
        "entries": [entry_view(entry) for entry in context.entries],
        "report": [{"code": r.code.value, "seq": r.seq, "text": r.text} for r in context.report.remarks],
        "tokens": context.tokens,
    }


def context_to_bytes(context: Context) -> bytes:
    """One way to write it, so that two contexts are the same if these are."""
    return json.dumps(context_to_json(context), sort_keys=True, separators=(",", ":")).encode("ascii")
