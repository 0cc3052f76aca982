"""Entries of a compression plan: summaries, masks, and omissions where a summary failed.

Without a summary the oldest turns are left out only as far as the context does not fit; earlier summaries stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from history.context.compression.planning import MASK_TOKENS, CompressionPlan, CompressionPolicy, SummarySpan
from history.context.tokens import calibrate, estimate_text
from history.context.values import Remark
from history.entries import JsonDict, Summary

AFTER_THAT = "(What came after this, up to entry "
LEFT_OUT = AFTER_THAT + "{last}, was left out to save space. It is still stored.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOutcome:
    """The summary of a stretch, or the reason why there is none."""

    stretch: SummarySpan
    text: str = ""
    provider: str = ""
    model: str = ""
    problem: Remark | None = None


def entries_of_plan(
    plan: CompressionPlan, outcomes: Sequence[SummaryOutcome], policy: CompressionPolicy, *, why: str, agent: str
) -> list[Summary]:
    """Entries to append: summaries, then omissions; or a single entry with the masks or the problem."""
    origin: JsonDict = {"why": why, "tokens_before": plan.tokens}
    made = [_summary(one, one.text, how="summary", origin=origin, agent=agent) for one in outcomes if one.text]
    refused = [one for one in outcomes if not one.text]
    tokens = plan.kept + calibrate(sum(one.stretch.tokens for one in refused), factor=plan.factor)
    # Less than the maximum: otherwise the next turn would compress, and pay, again.
    to_reach = (policy.target + policy.max_tokens) // 2
    for one in refused:
        if tokens > policy.max_tokens:
            earlier = _earlier_text(one.stretch)
            gone = one.stretch.oldest(int((tokens - to_reach) / plan.factor) + MASK_TOKENS + estimate_text(earlier))
            earlier = _earlier_text(gone)
            text = f"{earlier}\n\n{LEFT_OUT.format(last=gone.last)}" if earlier else ""
            made.append(_summary(replace(one, stretch=gone), text, how="left_out", origin=origin, agent=agent))
            tokens -= calibrate(gone.tokens, factor=plan.factor)
    problem = next((one.problem for one in refused if one.problem), None)
    if not made and (plan.masks or problem):
        made = [Summary(agent=agent, metadata={**origin, "how": "masks", **_reason(problem)})]
    # All masks are on the first entry, so that one retraction cancels everything. Summarised entries need no mask.
    needed = tuple(mask for mask in plan.masks if not any(one.first <= mask.seq <= one.last for one in made))
    return [replace(one, masks=needed) if place == 0 else one for place, one in enumerate(made)]


def _summary(one: SummaryOutcome, text: str, *, how: str, origin: JsonDict, agent: str) -> Summary:
    return Summary(
        first=one.stretch.first,
        last=one.stretch.last,
        summary=text,
        within_turn=one.stretch.within_turn,
        provider=one.provider if one.text else "",
        model=one.model if one.text else "",
        agent=agent,
        metadata={**origin, "how": how, "messages": one.stretch.messages, **_reason(one.problem)},
    )


def _earlier_text(stretch: SummarySpan) -> str:
    """The text of earlier summaries, without their notes on omissions."""
    earlier = "\n\n".join(summary.summary for summary in stretch.earlier if summary.summary.strip())
    return earlier.partition(f"\n\n{AFTER_THAT}")[0]


def _reason(problem: Remark | None) -> JsonDict:
    return {"problem": problem.code.value, "problem_values": dict(problem.values)} if problem else {}
