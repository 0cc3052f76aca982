"""What the columns of a row say about its entry, and about it alone: `verification` computes them again and compares.

How long a text in a column may be is for the models to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from history.db import bulk
from history.db.packing import LONG_TEXT, clean, clean_json
from history.entries import (
    KINDS,
    STATE,
    Entry,
    ModelInput,
    ModelOutput,
    NotebookSet,
    Summary,
    ToolRequest,
    ToolResult,
    ToolResults,
    UnknownEntry,
    kind_of,
    thaw,
)
from history.models import Message, ToolCall

ERROR_MARK = "【错误】"
FAILED_RESULTS = "failed"  # in the metadata of results whose texts were dropped
SEARCHED = (ModelInput, ModelOutput, ToolResults, Summary, NotebookSet)


def columns_of(entry: Entry) -> dict[str, Any]:
    """Every column of `Message` that follows from the entry alone."""
    content = clean(content_of(entry))
    columns = {
        "kind": stored_kind(entry),
        "is_state": entry.kind in STATE,
        "role": entry.role,
        "content": content[:LONG_TEXT],
        "content_chars": len(content),
        **_texts(entry, "agent"),
        "is_internal": entry.is_internal,
        "created_at": entry.at,
        "metadata": clean_json(thaw(entry.metadata)) if entry.metadata else {},
    }
    if isinstance(entry, ModelOutput):
        columns |= _answer_columns(entry)
    elif isinstance(entry, Summary):
        columns |= _texts(entry, "provider", "model")
    return columns


def _answer_columns(entry: ModelOutput) -> dict[str, Any]:
    usage = entry.usage
    return {
        **_texts(entry, "provider", "model", "end_reason", "request_id"),
        "status": entry.status,
        "input_tokens": clamp_count(usage.input_tokens) if usage else 0,
        "output_tokens": clamp_count(usage.output_tokens) if usage else 0,
        "usage_source": usage.source if usage else "",
        "latency": finite_or_none(entry.latency),
        "duration": finite_or_none(entry.duration),
    }


def _texts(entry: Entry, *names: str) -> dict[str, str]:
    """Columns that are called like the fields of the entry."""
    return {name: bulk.fit_text(Message, name, getattr(entry, name)) for name in names}


def stored_kind(entry: Entry) -> str:
    """The kind in the row; something malformed that claims to be of a known kind is only 'unknown'."""
    kind = clean(kind_of(entry))
    return UnknownEntry.kind if isinstance(entry, UnknownEntry) and (not kind or kind in KINDS) else kind


def content_of(entry: Entry) -> str:
    """The text for people. A failed answer says so here, and only here: the body stays clean for models."""
    if isinstance(entry, ModelOutput) and entry.status == "failed":
        return "\n\n".join(filter(None, [entry.text, f"{ERROR_MARK}{entry.error or entry.end_reason}"]))
    return entry.text


def searched_text(entry: Entry) -> str:
    """Everything in an entry that somebody may look for; '' for bookkeeping, which nobody does."""
    if not isinstance(entry, SEARCHED):
        return ""
    if isinstance(entry, ModelOutput):
        asked = [f"{request.name} {request.arguments}" for request in entry.tool_requests]
        return "\n".join(filter(None, [content_of(entry), entry.plan, entry.reasoning, *asked]))
    if isinstance(entry, ToolResults):
        said = [f"{result.name}\n{result.text}\n{result.error}".strip() for result in entry.results]
        return "\n".join(filter(None, [entry.overall, *said]))
    if isinstance(entry, ModelInput):
        names = [media.name for media in entry.attachments]
        return "\n".join(filter(None, [entry.text, *names]))
    return entry.text


def tools_named(entry: Entry) -> tuple[str, ...]:
    if isinstance(entry, ModelOutput):
        return tuple(dict.fromkeys(request.name for request in entry.tool_requests))
    if isinstance(entry, ToolResults):
        return tuple(dict.fromkeys(result.name for result in entry.results))
    return ()


def errors_in(entry: Entry) -> int:
    if isinstance(entry, ModelOutput):
        return int(entry.status == "failed")
    if isinstance(entry, ToolResults):
        return sum(result.status == "failed" for result in entry.results)
    return 0


def errors_left(*, kind: str, status: str, metadata: Mapping[str, Any]) -> int:
    """The same of an entry whose texts were dropped: the row has kept how many of its results had failed."""
    if kind == ModelOutput.kind:
        return int(status == "failed")
    return int(metadata.get(FAILED_RESULTS, 0)) if kind == ToolResults.kind else 0


def call_columns(request: ToolRequest, *, status: str) -> dict[str, Any]:
    return {
        "call_id": stored_id(request.call_id),
        "name": bulk.fit_text(ToolCall, "name", request.name),
        "arguments": clean(request.arguments[:LONG_TEXT]),
        "status": status,
    }


def same_id(one: str, other: str) -> bool:
    """Whether two ids of calls are the same in the rows of calls, where they are short and clean."""
    return one == other or stored_id(one) == stored_id(other)


def stored_id(call_id: str) -> str:
    return bulk.fit_text(ToolCall, "call_id", call_id)


def outcome_columns(result: ToolResult) -> dict[str, Any]:
    return {
        "status": result.status,
        "result": clean(result.text[:LONG_TEXT]),
        "error": clean(result.error[:LONG_TEXT]),
        "started_at": result.started_at,
        "duration": finite_or_none(result.duration),
    }


NO_OUTCOME: dict[str, Any] = {
    "status": "pending",
    "result": "",
    "error": "",
    "started_at": None,
    "duration": None,
    "answered_by": None,
    "answer_index": None,
}


def finite_or_none(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None


def clamp_count(number: int) -> int:
    return max(0, min(number, 2_147_483_647))
