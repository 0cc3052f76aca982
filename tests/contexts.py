"""Contexts as canonical JSON, to compare them."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from history.context.values import RENDERER_VERSION, Context, entry_view
from history.entries import JsonDict, ToolsOffered, entry_to_json


def context_to_json(context: Context) -> JsonDict:
    tools = ToolsOffered(at=datetime.fromtimestamp(0, UTC), tools=context.tools)
    return {
        "renderer": RENDERER_VERSION,
        "system": context.system,
        "tools": entry_to_json(tools).get("tools", []),
        "entries": [entry_view(entry) for entry in context.entries],
        "report": [{"code": r.code.value, "seq": r.seq, "text": r.text} for r in context.report.remarks],
        "tokens": context.tokens,
    }


def context_to_bytes(context: Context) -> bytes:
    """Equal contexts have equal bytes."""
    return json.dumps(context_to_json(context), sort_keys=True, separators=(",", ":")).encode("ascii")
