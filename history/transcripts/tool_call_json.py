"""JSON of a tool call, the same on the socket and in the REST API."""

from __future__ import annotations

import json
from typing import Any

from history.db.packing import clean_deep
from history.models import ToolCall


def call_json(call: ToolCall) -> dict[str, Any]:
    return {
        "id": call.call_id,
        "tool_name": call.name,
        "arguments": arguments_json(call.arguments),
        "result": call.result or call.error,
        "status": call.status,
        "duration": call.duration,
        "timestamp": (call.started_at or call.created_at).isoformat(),
    }


def arguments_json(text: str) -> Any:
    """An object where it is one. What is cut off, nested without end or not quite JSON stays the text that it was."""
    try:
        return clean_deep(json.loads(text, parse_constant=_refuse)) if text else {}
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
