"""`python -m bench.compression`: long conversations in small windows, and what a compression of a long one costs.

300 scripted turns over a window of 4,000 tokens, and 5 of the embedded model over one of 1,000, stay within it and
never err, although what was said comes to more than the window holds. Planning and storing a summary of what was said
since the last one costs what that is, however long the session.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from typing import Any

LONG = "a word or two about nothing in particular " * 12
# Of the embedded model, short answers to long questions: it writes slowly.
ANSWER_TOKENS = 60
SUMMARY = "## Goal\nTo answer questions.\n## Next step\nAnswer the next question as before, one after the other."


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp") as folder:
        os.environ |= {
            "DATABASE_URL": f"sqlite:///{folder}/bench.sqlite3",
            "REDIS_URL": "",
            "PARLEY_DATA_DIR": folder,
            "DJANGO_SETTINGS_MODULE": "project.settings",
            "CHAT_HISTORY_ENABLED": "true",
            "PARLEY_CHAT_MESSAGES_PER_MINUTE": "0",
        }
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        return _measure()


def _measure() -> int:
    from bench.measure import HEAD, Line, Table

    table = Table()
    print(f"\n\n### compression\n\n{HEAD}")
    scripted = asyncio.run(_turns(_scripted(window=4_000), count=300, window=4_000, question=LONG))
    _judge(table, "300 scripted turns, window 4,000", scripted)
    table.add(Line("a turn, its compressions included", scripted.seconds / 300 * 1_000, "ms"))
    if (provider := _embedded(window=1_000)) is not None:
        _give_short_answers()
        real = asyncio.run(_turns(provider, count=5, window=1_000, question=LONG * 2))
        _judge(table, "5 turns of the embedded model, window 1,000", real)
        table.add(Line("… as the model itself counted, with its answer", real.counted, "tokens", goal=1_000))
    short, long = _cost_of_compressing(1_000), _cost_of_compressing(10_000)
    table.add(Line("summarising 200 messages of 1,000", short * 1_000, "ms"))
    table.add(Line("summarising 200 messages of 10,000, against that", long / short, "×", goal=2.0))
    return 0 if table.reached else 1


# Turns.


@dataclass
class CompressionMeasure:
    """What was told at most, in our own estimate and as the model counted it, of how much that was said."""

    limit: int
    most: int = 0
    counted: int = 0
    said: int = 0
    shortened: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


def _judge(table: Any, what: str, measure: CompressionMeasure) -> None:
    """That it fits shows something only where it would not have: more was said, and some of it is told no more."""
    from bench.measure import Line

    how = ", ".join(f"{times} × {how}" for how, times in sorted(measure.shortened.items()))
    table.add(Line(f"{what}: most tokens told", measure.most, "tokens", goal=measure.limit))
    table.add(
        Line("… tokens of everything that was said", measure.said, "tokens", goal=measure.limit + 1, at_least=True)
    )
    times = measure.shortened.total()
    table.add(Line("… how often less was told from then on", times, "times", goal=1, at_least=True, note=how))


async def _turns(provider: Any, *, count: int, window: int, question: str) -> CompressionMeasure:
    from django.contrib.auth import get_user_model

    from history.db.process_state import process_state
    from history.models import Session
    from relay import conversation
    from relay.agents.requests import context_limit
    from relay.agents.settings import find_agent
    from relay.live import run_task, runs
    from relay.providers import connections, registry
    from relay.runtime.async_db import in_database

    process_state.set(registry.Router([provider]))
    measure = CompressionMeasure(
        await in_database(lambda: context_limit(provider.models[0], find_agent("").max_answer_tokens))
    )
    user = await in_database(get_user_model().objects.create_user, f"bench-{window}")
    session, began = None, time.monotonic()
    for number in range(count):
        text = f"Question {number}: {question}?"
        if session is None:
            session = await conversation.start_session(user, conversation.MessageDraft(text=text))
        else:
            head = await in_database(lambda pk: Session.objects.get(pk=pk).head, session.pk)
            seen = conversation.ViewerPosition(after=head)
            await conversation.send(user, session, conversation.MessageDraft(text=text), seen)
        await asyncio.gather(*(live.task for live in [*run_task.local_tasks.values()] if live.task))
    measure.seconds = time.monotonic() - began
    measure.most = provider.most
    await in_database(_look_back, session, measure)
    await runs.stop_all()
    await connections.close()
    process_state.reset(registry.Router)
    return measure


def _look_back(session: Any, measure: CompressionMeasure) -> None:
    """Nothing erred, and what was said, asked and shortened meanwhile."""
    from history.context.rendering import render_context
    from history.context.values import ContextOptions
    from history.models import Exchange, Message
    from history.record import selectors
    from relay.models import Run

    messages = Message.objects.filter(session=session)
    bad = Run.objects.filter(session=session.pk).exclude(outcome="done").count()
    failed = messages.exclude(status="complete").count()
    assert (bad, failed) == (0, 0), f"{bad} runs and {failed} answers failed"
    for entry in selectors.entries_of(list(messages.filter(kind="summary"))):
        measure.shortened[entry.metadata["how"]] += 1
    used = Exchange.objects.filter(session=session).values_list("usage", flat=True)
    measure.counted = max((use.get("input_tokens", 0) + use.get("output_tokens", 0) for use in used), default=0)
    taken = selectors.snapshot(session)
    everything = replace(taken, nodes=tuple(node for node in taken.nodes if node.entry.kind != "summary"))
    measure.said = render_context(everything, ContextOptions(max_turns=None)).tokens


def _give_short_answers() -> None:
    from relay.models import Agent

    Agent.objects.update(max_answer_tokens=ANSWER_TOKENS)


class _Watched:
    """A provider with a window of our choice, which notes how much it is told."""

    def __init__(self, inner: Any, *, window: int) -> None:
        self.inner, self.endpoint, self.most = inner, inner.endpoint, 0
        self.name, self.label, self.dialect, self.is_demo = inner.name, inner.label, inner.dialect, inner.is_demo
        self.models = tuple(replace(model, window=window, context_tokens=None) for model in inner.models)

    async def call(self, context: Any, options: Any, *, notes: Any = None) -> AsyncGenerator[Any, None]:
        from history.context.tokens import estimate_context

        measure = estimate_context(context.entries, system=context.system, tools=context.tools)
        self.most = max(self.most, measure)
        async for event in self.inner.call(context, options, notes=notes):
            yield event


def _scripted(*, window: int) -> _Watched:
    from tests.relay.providers.scripted import ScriptedProvider

    def answer(context: Any, options: Any) -> str:
        return SUMMARY if "<record>" in context.system else f"Here it is: {LONG}"

    return _Watched(ScriptedProvider(answer), window=window)


def _embedded(*, window: int) -> _Watched | None:
    from relay.providers.local import LocalProvider, missing_packages

    if missing_packages():
        print("(the embedded model is not installed here)")
        return None
    return _Watched(LocalProvider(), window=window)


# Cost.


def _cost_of_compressing(messages: int) -> float:
    """Seconds to plan and store a summary of the newest 200 messages, of which all before are summarised already."""
    from django.contrib.auth import get_user_model

    from history.context.compression.planning import SummaryOutcome, entries_of_plan
    from history.entries import ModelInput, ModelOutput, Summary, Text
    from history.record import recorder
    from relay.agents.compression import plan_compression
    from relay.agents.turn import CompressionRequest, TurnInput
    from relay.models import Agent
    from relay.providers.base import Model

    user = get_user_model().objects.create_user(f"bench-cost-{messages}")
    took: list[float] = []
    for _ in range(5):
        session = recorder.start_session(owner=user)
        parts = (Text(text=LONG),)
        said = [ModelInput(parts=parts) if n % 2 == 0 else ModelOutput(parts=parts) for n in range(messages)]
        recorder.append_many(session, said, after=0)
        recorder.append(session, Summary(first=1, last=messages - 200, summary=SUMMARY), after=messages)
        turn = TurnInput(session_id=session.pk, user=user, leaf=messages + 1, agent=Agent())
        began = time.perf_counter()
        plan, policy = plan_compression(
            turn, turn.leaf, model=Model(name="m", window=200_000), request=CompressionRequest(why="asked")
        )
        written = [SummaryOutcome(stretch=one, text=SUMMARY) for one in plan.stretches]
        entries = entries_of_plan(plan, written, policy, why="asked", agent="")
        recorder.append_behind(session, entries, after=turn.leaf)
        took.append(time.perf_counter() - began)
        assert plan.stretches[0].messages > 150
    return statistics.median(took)


if __name__ == "__main__":
    sys.exit(main())
