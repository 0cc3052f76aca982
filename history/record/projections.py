"""Columns that follow from the entry of a row alone. `verification` computes them again and compares."""

import math
from collections.abc import Iterator, Sequence
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
    ToolResult,
    ToolResults,
    UnknownEntry,
    kind_of,
    thaw,
)
from history.models import Message, ToolCall

Columns = dict[str, Any]  # values of columns by their names

ERROR_MARK = "【错误】"
FAILED_RESULTS = "failed"  # in the metadata of results whose texts were dropped


def columns_of(entry: Entry) -> Columns:
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
    if isinstance(entry, Summary):
        columns |= _texts(entry, "provider", "model")
    elif isinstance(entry, ModelOutput):
        usage = entry.usage
        columns |= {
            **_texts(entry, "provider", "model", "end_reason", "request_id"),
            "status": entry.status,
            "input_tokens": clamp_count(usage.input_tokens) if usage else 0,
            "output_tokens": clamp_count(usage.output_tokens) if usage else 0,
            "usage_source": usage.source if usage else "",
            "latency": finite_or_none(entry.latency),
            "duration": finite_or_none(entry.duration),
        }
    return columns


def _texts(entry: Entry, *names: str) -> dict[str, str]:
    return {name: bulk.fit_text(Message, name, getattr(entry, name)) for name in names}


def stored_kind(entry: Entry) -> str:
    """The kind of the row. Malformed entries that claim a known kind are `unknown`."""
    kind = clean(kind_of(entry))
    return UnknownEntry.kind if isinstance(entry, UnknownEntry) and (not kind or kind in KINDS) else kind


def content_of(entry: Entry) -> str:
    """The text for people. It includes the error of a failed answer; the body stays clean for models."""
    if isinstance(entry, ModelOutput) and entry.status == "failed":
        return "\n\n".join(filter(None, [entry.text, f"{ERROR_MARK}{entry.error or entry.end_reason}"]))
    return entry.text


def searched_text(entry: Entry) -> str:
    """All texts of an entry that can be searched; empty for bookkeeping."""
    if isinstance(entry, ModelOutput):
        requests = [f"{request.name} {request.arguments}" for request in entry.tool_requests]
        return "\n".join(filter(None, [content_of(entry), entry.plan, entry.reasoning, *requests]))
    if isinstance(entry, ToolResults):
        results = [f"{result.name}\n{result.text}\n{result.error}".strip() for result in entry.results]
        return "\n".join(filter(None, [entry.overall, *results]))
    if isinstance(entry, ModelInput):
        return "\n".join(filter(None, [entry.text, *(media.name for media in entry.attachments)]))
    return entry.text if isinstance(entry, Summary | NotebookSet) else ""


def tools_named(entry: Entry) -> tuple[str, ...]:
    names = [*(request.name for request in entry.tool_requests), *(result.name for result in entry.results)]
    return tuple(dict.fromkeys(names))


def errors_in(entry: Entry) -> int:
    if isinstance(entry, ModelOutput):
        return int(entry.status == "failed")
    return sum(result.status == "failed" for result in entry.results)


def stored_errors(message: Message) -> int:
    """The number of errors of an entry whose texts were dropped. Its row has kept the number of failed results."""
    if message.kind == ModelOutput.kind:
        return int(message.status == "failed")
    return int(message.metadata.get(FAILED_RESULTS, 0)) if message.kind == ToolResults.kind else 0


def calls_in(entry: Entry) -> list[tuple[str, str]]:
    return [(request.call_id, request.name) for request in entry.tool_requests]


def build_calls(message: Message, entry: Entry) -> list[ToolCall]:
    """The rows of the tool calls that an answer asks for, without outcomes."""
    if not isinstance(entry, ModelOutput):
        return []
    status = ToolCall.Status.PENDING if entry.status == "complete" else ToolCall.Status.INTERRUPTED
    return [
        ToolCall(
            session_id=message.session_id,
            message=message,
            index=index,
            created_at=entry.at,
            call_id=stored_id(request.call_id),
            name=bulk.fit_text(ToolCall, "name", request.name),
            arguments=clean(request.arguments[:LONG_TEXT]),
            status=status,
        )
        for index, request in enumerate(entry.tool_requests)
    ]


def pair_results(call_ids: Sequence[str], result_ids: Sequence[str]) -> Iterator[int | None]:
    """For each call the index of its result: the first with its id. Models reuse ids; each result answers one call."""
    waiting = dict(enumerate(result_ids))
    for call_id in call_ids:
        match = next((index for index, result_id in waiting.items() if same_id(result_id, call_id)), None)
        if match is not None:
            del waiting[match]
        yield match


def same_id(one: str, other: str) -> bool:
    """Whether two call ids are equal once they are cut and cleaned for the rows."""
    return one == other or stored_id(one) == stored_id(other)


def stored_id(call_id: str) -> str:
    return bulk.fit_text(ToolCall, "call_id", call_id)


def set_outcome(call: ToolCall, result: ToolResult, *, seq: int, index: int) -> Columns:
    """Set and return the outcome of a call that result `index` of entry `seq` answers."""
    outcome = outcome_columns(result, seq=seq, index=index)
    for name, value in outcome.items():
        setattr(call, name, value)
    return outcome


def outcome_columns(result: ToolResult, *, seq: int, index: int) -> Columns:
    return {
        "status": result.status,
        "result": clean(result.text[:LONG_TEXT]),
        "error": clean(result.error[:LONG_TEXT]),
        "started_at": result.started_at,
        "duration": finite_or_none(result.duration),
        "answered_by": seq,
        "answer_index": index,
    }


NO_OUTCOME: Columns = {
    "status": "pending", "result": "", "error": "", "started_at": None, "duration": None,
    "answered_by": None, "answer_index": None,
}  # fmt: skip


def finite_or_none(number: float | None) -> float | None:
    return number if number is None or math.isfinite(number) else None


def clamp_count(number: int) -> int:
    return max(0, min(number, 2_147_483_647))
