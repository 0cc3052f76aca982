"""From a plan and what the summariser wrote to the entries that are appended: summaries, masks, or what is left out.

Of a stretch without a summary the oldest turns are left out, and only where the context would not fit otherwise; what
an earlier summary said of them is kept. Every entry says in its metadata how it came about, so that a page can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from history.context.compression.checks import Problem
from history.context.compression.planning import MASK_TOKENS, CompressionPlan, CompressionPolicy, SummarySpan
from history.context.tokens import calibrate, estimate_text
from history.entries import MaskedResult, Summary

AFTER_THAT = "(What came after this, up to entry "
LEFT_OUT = AFTER_THAT + "{last}, was left out to save room. It is still stored.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of one stretch: a summary, or the reason why there is none."""

    stretch: SummarySpan
    text: str = ""
    provider: str = ""
    model: str = ""
    problem: Problem | None = None


def entries_of_plan(
    plan: CompressionPlan, written: Sequence[Written], policy: CompressionPolicy, *, why: str, agent: str
) -> list[Summary]:
    """What to append, in this order: summaries, what is left out instead of one, or only why there is none."""
    told: dict[str, Any] = {"why": why, "tokens_before": plan.tokens}
    entries = [_summary(one, told=told, agent=agent) for one in written if one.text]
    refused = [one for one in written if not one.text]
    tokens = plan.kept + calibrate(sum(one.stretch.tokens for one in refused), factor=plan.factor)
    for one in refused:
        if tokens > policy.room:
            gone = _what_must_go(one, tokens - _enough(policy), factor=plan.factor)
            entries.append(_left_out(gone, told=told, agent=agent))
            tokens -= calibrate(gone.stretch.tokens, factor=plan.factor)
    problem = next((one.problem for one in refused if one.problem), None)
    if not entries and (plan.masks or problem):
        entries = [_masks_alone(problem, told=told, agent=agent)]
    return _with_masks(entries, plan.masks)


def _masks_alone(problem: Problem | None, *, told: Mapping[str, Any], agent: str) -> Summary:
    """It stands for nothing: it masks results, or only says that there is no summary."""
    return Summary(agent=agent, metadata={**told, "how": "masks", **_reason(problem)})


def _summary(one: Written, *, told: Mapping[str, Any], agent: str) -> Summary:
    return Summary(
        first=one.stretch.first,
        last=one.stretch.last,
        summary=one.text,
        within_turn=one.stretch.within_turn,
        provider=one.provider,
        model=one.model,
        agent=agent,
        metadata={**told, "how": "summary", "messages": one.stretch.messages},
    )


def _enough(policy: CompressionPolicy) -> int:
    """Not just what fits: then the very next turn would try, and pay, again."""
    return (policy.target + policy.room) // 2


def _what_must_go(one: Written, tokens: int, *, factor: float) -> Written:
    """The oldest turns of the stretch, so many tokens of them; what is said instead has its price, too."""
    instead = MASK_TOKENS + estimate_text(_kept_of(one.stretch))
    return replace(one, stretch=one.stretch.oldest(int(tokens / factor) + instead))


def _kept_of(stretch: SummarySpan) -> str:
    """What an earlier summary said of it, without its note on what was left out then."""
    earlier = "\n\n".join(summary.summary for summary in stretch.earlier if summary.summary.strip())
    return earlier.partition(f"\n\n{AFTER_THAT}")[0]


def _left_out(one: Written, *, told: Mapping[str, Any], agent: str) -> Summary:
    kept = _kept_of(one.stretch)
    return Summary(
        first=one.stretch.first,
        last=one.stretch.last,
        summary=f"{kept}\n\n{LEFT_OUT.format(last=one.stretch.last)}" if kept else "",
        within_turn=one.stretch.within_turn,
        agent=agent,
        metadata={**told, "how": "left_out", "messages": one.stretch.messages, **_reason(one.problem)},
    )


def _with_masks(entries: list[Summary], masks: Sequence[MaskedResult]) -> list[Summary]:
    """On the first of them, so that one step back takes all of it back. What a summary stands for needs no mask."""
    needed = tuple(mask for mask in masks if not any(one.first <= mask.seq <= one.last for one in entries))
    return [replace(one, masks=needed) if place == 0 else one for place, one in enumerate(entries)]


def _reason(problem: Problem | None) -> dict[str, Any]:
    return {"problem": problem.code.value, "problem_values": dict(problem.values)} if problem else {}
