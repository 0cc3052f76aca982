"""One turn of an agent: ask a model, run the tools it asks for, ask again, until there is an answer or reason to stop.

A run follows its own leaf: whatever happens beside it in the session, each call is made from the path to the entry that
the run itself wrote last. Everything is stored as it happens, so whoever ends a turn in the middle, a person, an error
or the end of the process, loses nothing that was said before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar
from uuid import UUID

from history import exchanges, recorder, selectors
from history.assembly import Assembler
from history.entries import Entry, ModelInput, ModelOutput, Text, ToolRequest, ToolResult, ToolResults
from history.events import Event
from history.halves import Halves
from history.models import Message, Session
from history.transactions import writing
from relay import allowances, words
from relay.agent.calls import Prepared, outcome_of, prepare_call
from relay.agent.settings import AgentSettings, RoleName
from relay.agent.tools.base import ToolContext
from relay.agent.tools.registry import Toolbox, toolbox
from relay.agent.tools.running import answer_all, run_calls
from relay.database import in_database
from relay.errors import Cut, ProviderError, RelayError
from relay.models import Run
from relay.providers.base import CallNotes
from relay.providers.registry import router

# What one role of an agent says to the next. Internal: people see it behind a toggle, the model sees it.
BRIEFINGS: dict[RoleName, str] = {
    "planner": "Before anybody acts: write a short plan for the task above. Do not carry it out yet.",
    "executor": "Carry out the plan above.",
    "reviewer": "Review the answer above: is it complete and right? Name what is wrong or missing, briefly.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is to be answered: the entry `leaf` of a session, by an agent, on behalf of its owner.

    `answers` are a person's words for open calls of `ask_user`, by call id; `client` says who was connected from where.
    """

    session_id: UUID
    user: Any
    leaf: int
    agent: AgentSettings
    model: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)


class Watcher(Protocol):
    """Who is told how a turn goes; `stop_reason` says why it was cancelled, if it was."""

    id: UUID

    @property
    def stop_reason(self) -> str: ...

    async def opened(self, prepared: Prepared, assembler: Assembler, *, role: RoleName) -> None: ...

    def fed(self, event: Event) -> None: ...

    async def stored(self, *, leaf: int) -> None: ...

    async def calling(self, *, seq: int, requests: Sequence[ToolRequest]) -> None: ...

    def result(self, *, seq: int, index: int, result: ToolResult) -> None: ...


@dataclass(frozen=True, slots=True)
class Said:
    """One stored answer: where it stands, and what it was."""

    seq: int
    output: ModelOutput


class TurnFailed(Exception):
    """The turn ended with an error that is stored with its answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error


async def answer(turn: Turn, watcher: Watcher) -> Run.Outcome:
    """Carry the turn through. Raises TurnFailed, NoSuchModel; cancelled, it stores what there is and goes."""
    leaf = turn.leaf
    asked = await in_database(_open_calls, turn.session_id, leaf) if turn.answers else None
    if asked:
        return await _resume(turn, watcher, asked)
    for place, role in enumerate(turn.agent.roles):
        if role != "executor" or place > 0:
            leaf = await _brief(turn, watcher, role, leaf)
        outcome, leaf = await _speak(turn, watcher, role, leaf)
        if outcome is not Run.Outcome.DONE:
            return outcome
    return Run.Outcome.DONE


async def _resume(turn: Turn, watcher: Watcher, asked: Said) -> Run.Outcome:
    """Go on at an answer whose calls are open: somebody has answered its question."""
    outcome, leaf = await _use_tools(turn, watcher, asked)
    if outcome is None:
        outcome, leaf = await _speak(turn, watcher, "executor", leaf)
    return outcome


async def _brief(turn: Turn, watcher: Watcher, role: RoleName, leaf: int) -> int:
    said = ModelInput(channel="agent", is_internal=True, agent=turn.agent.name, parts=(Text(text=BRIEFINGS[role]),))
    return await _keep(turn, watcher, said, after=leaf)


async def _speak(turn: Turn, watcher: Watcher, role: RoleName, leaf: int) -> tuple[Run.Outcome, int]:
    for _ in range(turn.agent.max_steps):
        said = await _ask(turn, watcher, role, leaf)
        leaf = said.seq
        if not said.output.tool_requests:
            return Run.Outcome.DONE, leaf
        outcome, leaf = await _use_tools(turn, watcher, said)
        if outcome is not None:
            return outcome, leaf
    return Run.Outcome.LIMIT, leaf


# A call to a model.


async def _ask(turn: Turn, watcher: Watcher, role: RoleName, leaf: int) -> Said:
    route = router().route(turn.agent.model_for(role, picked=turn.model))
    prepared = await in_database(
        prepare_call, turn.session_id, leaf=leaf, agent=turn.agent, role=role, route=route, client=turn.client
    )
    call = _Call(turn, prepared, role)
    await watcher.opened(prepared, call.assembler, role=role)
    try:
        await call.listen(watcher)
    except ProviderError as error:
        await call.store(watcher, "upstream_cut" if isinstance(error, Cut) else "upstream_error", error=error)
        raise TurnFailed(error) from error
    except asyncio.CancelledError:
        await _to_the_end(call.store(watcher, watcher.stop_reason or "stopped"))
        raise
    except BaseException:
        await _to_the_end(call.store(watcher, "server_error"))
        raise
    return await _to_the_end(call.store(watcher, "done"))


class _Call:
    """An answer in the making."""

    def __init__(self, turn: Turn, prepared: Prepared, role: RoleName) -> None:
        self.turn, self.prepared, self.role = turn, prepared, role
        route = prepared.route
        self.assembler = Assembler(provider=route.provider.name, model=route.model.name, agent=turn.agent.name)
        self.halves, self.notes = Halves(), CallNotes()
        self.begun = time.monotonic()
        self.latency: float | None = None

    async def listen(self, watcher: Watcher) -> None:
        provider, prepared = self.prepared.route.provider, self.prepared
        async with aclosing(provider.call(prepared.context, prepared.options, notes=self.notes)) as events:
            async for event in events:
                if self.latency is None:
                    self.latency = time.monotonic() - self.begun
                self._take(self.halves.joined(event), watcher)
        for event in self.halves.rest():
            self._take(event, watcher)

    def _take(self, event: Event, watcher: Watcher) -> None:
        self.assembler.feed(event)
        watcher.fed(event)

    async def store(self, watcher: Watcher, end_reason: str, *, error: ProviderError | None = None) -> Said:
        output = self.assembler.output(
            latency=self.latency,
            duration=time.monotonic() - self.begun,
            metadata={} if self.role == "executor" else {"role": self.role},
        )
        if error is not None:
            output = replace(output, error=output.error or str(error))
        seq = await in_database(_finish, watcher.id, self, output, end_reason)
        await watcher.stored(leaf=seq)
        return Said(seq, output)


def _finish(run_id: UUID, call: _Call, output: ModelOutput, end_reason: str) -> int:
    """The answer becomes a message, and the run stands there."""
    for content in call.assembler.blobs.values():
        recorder.store_blob(content, media_type="application/octet-stream")
    exchange = call.prepared.exchange
    with writing():
        outcome = outcome_of(call.prepared, call.notes)
        appended = exchanges.finish(exchange, output, end_reason=end_reason, error=output.error, **outcome)
        if output.usage:
            allowances.note_usage(call.turn.user, tokens=output.usage.input_tokens + output.usage.output_tokens)
        return _move(run_id, appended.seq) if appended else exchange.after


async def refuse(turn: Turn, watcher: Watcher, error: RelayError) -> None:
    """No model was asked, and the conversation says why: nobody offers it, or the person's allowance is used up."""
    said = ModelOutput(status="failed", end_reason="refused", error=words.of_error(error), agent=turn.agent.name)
    leaf = await in_database(_leaf, watcher.id)
    await _keep(turn, watcher, said, after=leaf)


# Tools.


async def _use_tools(turn: Turn, watcher: Watcher, said: Said) -> tuple[Run.Outcome | None, int]:
    """Run what an answer asks for. None: ask the model again."""
    requests, box = said.output.tool_requests, toolbox(turn.agent.tools)
    if any(_directive(box, request) == "ask_user" and request.call_id not in turn.answers for request in requests):
        return Run.Outcome.WAITING, said.seq
    await watcher.calling(seq=said.seq, requests=requests)
    results = await _results(turn, watcher, said, box)
    leaf = await _keep(turn, watcher, results, after=said.seq)
    finished = any(
        _directive(box, request) == "finish_task" and result.status == "success"
        for request, result in zip(requests, results.results, strict=True)
    )
    return (Run.Outcome.DONE if finished else None), leaf


async def _results(turn: Turn, watcher: Watcher, said: Said, box: Toolbox) -> ToolResults:
    """One for each request, in their order: the person's answer, or the tool's; interrupted where we are ended."""
    requests = said.output.tool_requests
    done = {
        place: ToolResult(call_id=request.call_id, name=request.name, parts=(Text(text=turn.answers[request.call_id]),))
        for place, request in enumerate(requests)
        if request.call_id in turn.answers
    }
    left = [place for place in range(len(requests)) if place not in done]

    def note(place: int, result: ToolResult) -> None:
        done[left[place]] = result
        watcher.result(seq=said.seq, index=left[place], result=result)

    context = ToolContext(user=turn.user, session_id=turn.session_id, agent=turn.agent.name)
    try:
        await run_calls([requests[place] for place in left], toolbox=box, context=context, on_result=note)
    except asyncio.CancelledError:
        results = answer_all(requests, done, agent=turn.agent.name)
        await _to_the_end(_keep(turn, watcher, results, after=said.seq))
        raise
    return answer_all(requests, done, agent=turn.agent.name)


def _directive(box: Toolbox, request: ToolRequest) -> str:
    known = box.get(request.name)
    return known.directive if known else ""


# The record.


async def _keep(turn: Turn, watcher: Watcher, entry: Entry, *, after: int) -> int:
    leaf = await _to_the_end(in_database(_append, watcher.id, turn.session_id, entry, after))
    await watcher.stored(leaf=leaf)
    return leaf


def _append(run_id: UUID, session_id: UUID, entry: Entry, after: int) -> int:
    with writing():
        return _move(run_id, recorder.append(Session.objects.get(pk=session_id), entry, after=after).seq)


def _move(run_id: UUID, leaf: int) -> int:
    Run.objects.filter(pk=run_id).update(leaf=leaf)
    return leaf


def _leaf(run_id: UUID) -> int:
    return Run.objects.values_list("leaf", flat=True).get(pk=run_id)


def _open_calls(session_id: UUID, leaf: int) -> Said | None:
    """The answer at the leaf, if its calls wait for somebody."""
    message = Message.objects.filter(session_id=session_id, seq=leaf).first()
    entry = selectors.entries_of([message])[0] if message else None
    if isinstance(entry, ModelOutput) and entry.tool_requests and entry.status == "complete":
        return Said(leaf, entry)
    return None


T = TypeVar("T")


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Whoever cancels us meanwhile waits until it is stored: half a write would leave a run without its leaf."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
