"""Entries, sessions and their rows for tests: made, compared, and changed behind the guards."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection, connections
from django.db.models import QuerySet
from django.db.models.signals import pre_delete

from history.context.values import RENDERER_VERSION, Context, entry_view
from history.db import packing
from history.entries import (
    JsonDict,
    ModelInput,
    ModelOutput,
    Text,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
    entry_to_json,
)
from history.models import AuditEvent, Blob, DayTally, Exchange, Message, Session, ToolCall, append_only
from history.record import recorder
from history.record.daily_count_rules import COUNTS, Key, Numbers, Sums, days_with_rows, sums_of_day


def model_input(text: str, **fields: Any) -> ModelInput:
    return ModelInput(parts=(Text(text=text),), **fields)


def model_output(text: str = "", *calls: ToolRequest, **fields: Any) -> ModelOutput:
    parts = (Text(text=text),) if text else ()
    return ModelOutput(parts=(*parts, *calls), model=fields.pop("model", "model-1"), **fields)


def tool_request(call_id: str, name: str = "sys_monitor", arguments: str = '{"metric": "cpu"}') -> ToolRequest:
    return ToolRequest(call_id=call_id, name=name, arguments=arguments)


def tool_result(call_id: str, text: str = "3 %", name: str = "sys_monitor", **fields: Any) -> ToolResult:
    return ToolResult(call_id=call_id, name=name, parts=(Text(text=text),), **fields)


def tool_results(*outcomes: ToolResult, **fields: Any) -> ToolResults:
    return ToolResults(results=outcomes, **fields)


def create_chat(owner: Any, *texts: str, **fields: Any) -> Session:
    """A session in which the texts were said in turns: a person, a model, a person …"""
    session = recorder.start_session(owner=owner, **fields)
    entries = [model_input(text) if place % 2 == 0 else model_output(text) for place, text in enumerate(texts)]
    if entries:
        recorder.append_many(session, entries, after=0)
    return session


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


def inputs_of(exchange: Exchange) -> Any:
    """The inputs of a call, with long ones read from their blobs."""
    blobs = dict(exchange.blobs.values_list("sha256", "data"))
    return packing.restore(exchange.inputs, blobs)


def stored_counts() -> Sums:
    rows = DayTally.objects.values(*Key._fields, *COUNTS)
    return {Key(*(row[name] for name in Key._fields)): _numbers(row) for row in rows}


def assert_counts_equal_a_recount() -> None:
    expected = {key: numbers for day in days_with_rows() for key, numbers in sums_of_day(day).items()}
    stored = stored_counts()
    wrong = {key: (stored.get(key), expected.get(key)) for key in stored.keys() | expected.keys()}
    assert {key: pair for key, pair in wrong.items() if pair[0] != pair[1]} == {}


def _numbers(row: Numbers) -> Numbers:
    return {name: row[name] for name in COUNTS}


@contextmanager
def run_before_statements(beginning: str, do: Callable[[int], object]) -> Iterator[list[int]]:
    """`do(0)`, `do(1)`, … before every statement of ours that begins so; gives what was done so far."""
    done: list[int] = []
    is_busy = False

    def between(execute: Any, sql: str, *rest: Any) -> Any:
        nonlocal is_busy
        if sql.startswith(beginning) and not is_busy:
            is_busy = True
            do(len(done))
            done.append(len(done))
            is_busy = False
        return execute(sql, *rest)

    with connection.execute_wrapper(between):
        yield done


def run_on_other_connection(do: Callable[[], object]) -> None:
    """Another connection does it and must not wait for this one."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            do()
        except BaseException as error:  # noqa: BLE001 - raised below, where the test sees it
            failed.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "another connection had to wait"
    if failed:
        raise failed[0]


GUARDED = (AuditEvent, Blob, Exchange, Message, Session, ToolCall)


class _Rows(QuerySet[Any]):
    def delete(self) -> tuple[int, dict[str, int]]:
        with _unguarded():
            return super().delete()


def without_guards(rows: QuerySet[Any]) -> QuerySet[Any]:
    """The same rows without any guard; a deletion takes along what refers to them."""
    return _Rows(rows.model, query=append_only.writable(rows).query, using=rows.db)


@contextmanager
def _unguarded() -> Iterator[None]:
    """Another receiver stays in the place of the guard: without one the collector takes a shortcut."""
    for model in GUARDED:
        pre_delete.disconnect(append_only._refuse_deletion, sender=model)
        pre_delete.connect(_let_pass, sender=model)
    try:
        yield
    finally:
        for model in GUARDED:
            pre_delete.disconnect(_let_pass, sender=model)
            pre_delete.connect(append_only._refuse_deletion, sender=model)


def _let_pass(**_named: Any) -> None:
    """Nothing."""


def example_count(number: int) -> int:
    """All of them with PARLEY_STEPS, as in `make faults`; a third on SQLite and an eighth on PostgreSQL otherwise."""
    if "PARLEY_STEPS" in os.environ:
        return number
    return max(2, number // (8 if settings.DATABASE_URL.startswith("postgres") else 3))
