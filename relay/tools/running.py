"""Calls of tools and their results: every request gets exactly one result.

Each failure is a result that tells the model why, in English, and does not affect the other calls of an answer.
"""

import asyncio
import contextvars
import inspect
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from django.db import connections

from history.dialects.json_access import parse_json
from history.entries import Media, ResultStatus, Text, ToolRequest, ToolResult, ToolResults, now
from relay.runtime.event_loop import parse_apart
from relay.tools.base import BadArguments, Output, Tool, Toolbox, ToolContext, ToolError, check_arguments

logger = logging.getLogger(__name__)

AT_ONCE = 8
SUMMARY_CHARS = 200
ERROR_CHARS = 500
FRAMES = 6
TRACEBACK_CHARS = 3_000
INTERRUPTED = "The call was interrupted before it ended."

# Sent instead of an empty result, which models take for an error or for an answer of their own.
NO_OUTPUT = "The tool ended without any output."

T = TypeVar("T")
OnResult = Callable[[int, ToolResult], None]


async def run_calls(
    requests: Sequence[ToolRequest], *, toolbox: Toolbox, context: ToolContext, on_result: OnResult | None = None
) -> ToolResults:
    """In the order of requests; `on_result` gets each as it comes. After a cancellation `answer_all` completes them."""
    done: dict[int, ToolResult] = {}
    places = asyncio.Semaphore(AT_ONCE)

    async def carry_out(index: int, request: ToolRequest) -> None:
        async with places:
            done[index] = await run_call(request, toolbox=toolbox, context=context)
        try:
            if on_result is not None:
                on_result(index, done[index])
        except Exception:  # a listener that fails is no reason to lose the other results
            logger.exception("The listener to results of %s failed.", request.name)

    async with asyncio.TaskGroup() as group:
        for index, request in enumerate(requests):
            group.create_task(carry_out(index, request))
    return answer_all(requests, done, agent=context.agent)


def answer_all(requests: Sequence[ToolRequest], done: Mapping[int, ToolResult], *, agent: str = "") -> ToolResults:
    """One result for each request: what is `done`, by its place, and for the rest that it was interrupted."""
    results = [
        done.get(index)
        or ToolResult(call_id=request.call_id, name=request.name, status="interrupted", error=INTERRUPTED)
        for index, request in enumerate(requests)
    ]
    return ToolResults(results=tuple(results), agent=agent)


async def run_call(request: ToolRequest, *, toolbox: Toolbox, context: ToolContext) -> ToolResult:
    """Carry out one request. Never raises but when it is cancelled."""
    call, context = _Call(request), replace(context, call_id=request.call_id)
    tool = toolbox.get(request.name)
    if tool is None:
        there = ", ".join(toolbox) or "none"
        return call.failed(f"There is no tool {request.name[:SUMMARY_CHARS]}. Available tools: {there}.")
    try:
        size = len(request.arguments)
        arguments = await parse_apart(size, lambda: check_arguments(tool.parameters, _read(request.arguments)))
    except BadArguments as error:
        return call.failed(f"{tool.name} was not called: {error}.")
    try:
        return call.succeeded(await _output(tool, context, arguments), limit=tool.output_chars)
    except ToolError as error:
        return call.failed(str(error))
    except _ToolTimeout:
        logger.warning("the tool %s took longer than %g seconds", tool.name, tool.timeout)
        return call.failed(f"{tool.name} took longer than {tool.timeout:g} seconds and was cancelled.")
    except (Exception, SystemExit) as error:
        logger.exception("the tool %s failed", tool.name)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        lines = traceback.format_exception(error, limit=-FRAMES, chain=False)
        return call.failed(f"{tool.name} failed: {text}"[:ERROR_CHARS], traceback="".join(lines)[-TRACEBACK_CHARS:])


class _ToolTimeout(Exception):
    """The time limit of the tool, not one that it ran into itself."""


class _Call:
    def __init__(self, request: ToolRequest) -> None:
        self.request = request
        self.started_at = now()
        self._start = time.perf_counter()

    def succeeded(self, output: Output, *, limit: int) -> ToolResult:
        text = output.text if output.text.strip() or output.media else NO_OUTPUT
        if len(text) <= limit:
            return self._result("success", text=text, media=output.media)
        cut = f"{text[:limit]}\n\n[Cut off: the first {limit:,} of {len(text):,} characters.]"
        return self._result("success", text=cut, media=output.media, output_chars=len(text))

    def failed(self, error: str, **metadata: Any) -> ToolResult:
        return self._result("failed", error=error, **metadata)

    def _result(
        self, status: ResultStatus, *, text: str = "", media: Sequence[Media] = (), error: str = "", **metadata: Any
    ) -> ToolResult:
        line = " ".join(self.request.arguments[: SUMMARY_CHARS * 4].split())
        summary = line if len(line) <= SUMMARY_CHARS else f"{line[: SUMMARY_CHARS - 1]}…"
        return ToolResult(
            call_id=self.request.call_id,
            name=self.request.name,
            status=status,
            parts=((Text(text=text),) if text else ()) + tuple(media),
            error=error,
            started_at=self.started_at,
            duration=round(time.perf_counter() - self._start, 6),
            metadata={"arguments": summary, **metadata},
        )


def _read(arguments: str) -> Any:
    """Models that give no arguments write nothing at all."""
    if not arguments.strip():
        return {}
    try:
        return parse_json(arguments)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(arguments.rstrip()) or error.msg.startswith("Unterminated string")
        why = "; they look incomplete: write them again, and shorter" if is_cut else ""
        raise BadArguments(f"the arguments are not valid JSON ({error.msg} at character {error.pos}){why}") from None
    except ValueError as error:
        raise BadArguments(f"the arguments are not valid JSON ({error})") from None


async def _output(tool: Tool, context: ToolContext, arguments: Mapping[str, Any]) -> Output:
    try:
        async with asyncio.timeout(tool.timeout) as limit:
            if inspect.iscoroutinefunction(tool.run):
                output: Any = await tool.run(context, **arguments)
            else:
                output = await in_thread(tool.run, context, **arguments)
    except TimeoutError:
        if limit.expired():
            raise _ToolTimeout from None
        raise
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        raise RuntimeError("the tool cancelled itself") from None
    if isinstance(output, str):
        return Output(output)
    if not isinstance(output, Output):
        raise TypeError(f"the tool {tool.name} returned no text but {type(output).__name__}")
    return output


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Cancelling stops the waiting, not the thread.

    In a pool, a tool that hangs would keep a place for ever and the process from ending; a daemon thread does neither.
    """
    call = partial(contextvars.copy_context().run, partial(function, *args, **kwargs))
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(target=_carry_out, args=(future, call), name="tool", daemon=True).start()
    return await asyncio.wrap_future(future)


def _carry_out(future: Future[T], call: Callable[[], T]) -> None:
    try:
        try:
            result = call()
        finally:
            connections.close_all()
    except StopIteration as error:  # no future takes one: its caller would wait for ever
        future.set_exception(RuntimeError(f"StopIteration: {error}").with_traceback(error.__traceback__))
    except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
        future.set_exception(error)
    else:
        future.set_result(result)
