"""Plans of compression, made without a model: what is masked, summarised or kept. See docs/internals/compression.md."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain

from history.context.messages import Masks, has_content, masked_results, pieces_of, span_of
from history.context.rendering import fixed_tokens, may_begin_turn, prepare, split_steps, split_turns
from history.context.tokens import calibrate, estimate_parts, estimate_text
from history.context.values import ContextOptions, Remark, Snapshot
from history.entries import CONVERSATION, JsonDict, MaskedResult, ModelInput, Node, Summary, ToolResult

Groups = Sequence[Sequence[Node]]
Mask = tuple[int, int]  # the seq of an entry and the index of a result in it
MASK_TOKENS = 45  # tokens of the note that replaces a masked result


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionPolicy:
    """In calibrated tokens. ``keep_turns`` limits the unchanged turns; ``is_asked``: a user wants it, needed or not."""

    target: int
    max_tokens: int
    summary_tokens: int = 800
    keep_turns: int | None = None
    keep_results: int = 3
    bulky: int = 200
    least: int = 120
    is_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySpan:
    """Entries ``first`` to ``last`` that a summary will replace. ``pieces`` are the entries that are sent for them now.

    ``tokens`` is not calibrated. ``groups``: pieces and tokens of each turn or step; a cut is possible between them.
    """

    first: int
    last: int
    pieces: tuple[Node, ...]
    tokens: int
    within_turn: bool = False
    groups: tuple[tuple[int, int], ...] = ()

    @property
    def messages(self) -> int:
        """The number of messages, without those that an earlier summary replaces."""
        return sum(1 for node in self.pieces if node.entry.kind in CONVERSATION)

    @property
    def earlier(self) -> tuple[Summary, ...]:
        return tuple(node.entry for node in self.pieces if isinstance(node.entry, Summary))

    def covers(self, seq: int) -> bool:
        return self.first <= seq <= self.last

    def oldest(self, tokens: int) -> "SummarySpan":
        """The oldest turns or steps with at least that many tokens, or all of it."""
        taken = [0, *accumulate(cost for _, cost in self.groups)]
        count = sum(1 for before in taken[:-1] if before < tokens)
        pieces = self.pieces[: sum(pieces for pieces, _ in self.groups[:count])]
        if not pieces or len(pieces) == len(self.pieces):
            return self
        last = max(_span(node)[1] for node in pieces)
        return replace(self, last=last, pieces=pieces, tokens=taken[count], groups=self.groups[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionPlan:
    """``tokens`` is the size of the context now, ``kept`` that of the part that stays. False: nothing to do."""

    masks: tuple[MaskedResult, ...] = ()
    stretches: tuple[SummarySpan, ...] = ()
    tokens: int = 0
    kept: int = 0
    factor: float = 1.0
    masked: Masks = frozenset()

    def __bool__(self) -> bool:
        return bool(self.masks or self.stretches)


@dataclass(frozen=True, slots=True)
class _Measure:
    """Uncalibrated tokens of parts of a path."""

    snapshot: Snapshot
    masked: Masks

    def __call__(self, pieces: Sequence[Node]) -> int:
        if not pieces:
            return 0
        return prepare(pieces, self.masked, session_id=self.snapshot.session_id, is_followed=True).tokens


def make_plan(snapshot: Snapshot, options: ContextOptions, policy: CompressionPolicy) -> CompressionPlan:
    """The changes that bring the context to the policy's target. Deterministic."""
    turns = split_turns(snapshot)
    if not turns:
        return CompressionPlan()
    masked, fixed = masked_results(snapshot.nodes), fixed_tokens(snapshot, options)
    before = fixed + sum(map(_Measure(snapshot, masked), turns))
    masks = _old_and_bulky(turns, masked, policy)
    measure = _Measure(snapshot, masked | {*masks})
    with_masks = fixed + sum(map(measure, turns))
    if not policy.is_asked and calibrate(with_masks, factor=options.calibration) <= policy.target:
        stretches: tuple[SummarySpan, ...] = ()
    else:
        budget = int((policy.target - policy.summary_tokens) / options.calibration) - fixed
        stretches = _stretches(turns, measure, policy, budget=budget)
        rest = [[node for node in turn if not any(one.covers(node.seq) for one in stretches)] for turn in turns]
        tokens = fixed + sum(map(measure, rest)) + (policy.summary_tokens if stretches else 0)
        more = _too_big(rest, measure, policy, tokens=tokens, factor=options.calibration)
        masks, measure = [*masks, *more], _Measure(snapshot, measure.masked | {*more})
        with_masks = fixed + sum(map(measure, turns))
    return CompressionPlan(
        masks=tuple(MaskedResult(seq=seq, index=index) for seq, index in masks),
        stretches=stretches,
        tokens=calibrate(before, factor=options.calibration),
        kept=calibrate(with_masks - sum(one.tokens for one in stretches), factor=options.calibration),
        factor=options.calibration,
        masked=measure.masked,
    )


def stretch_between(snapshot: Snapshot, *, first: int, last: int, within_turn: bool = False) -> SummarySpan | None:
    """The span between two numbers, to be summarised again; None if it sends no entries."""
    pieces = [node for node in pieces_of(snapshot) if first <= _span(node)[0] and _span(node)[1] <= last]
    span = _stretch([pieces], _Measure(snapshot, masked_results(snapshot.nodes)), within_turn=within_turn)
    return replace(span, first=first, last=last) if span else None


def _old_and_bulky(turns: Groups, masked: Masks, policy: CompressionPolicy) -> list[Mask]:
    results = [*_unmasked(turns, masked)]
    older = results[: max(0, len(results) - policy.keep_results)]
    return [mask for mask, result in older if estimate_parts(result.parts) >= policy.bulky]


def _unmasked(turns: Groups, masked: Masks) -> Iterator[tuple[Mask, ToolResult]]:
    for node in _flat(turns):
        for index, result in enumerate(node.entry.results):
            if (node.seq, index) not in masked:
                yield (node.seq, index), result


def _too_big(rest: Groups, measure: _Measure, policy: CompressionPolicy, *, tokens: int, factor: float) -> list[Mask]:
    """The biggest remaining results, however new, until the rest fits."""
    costs = [(estimate_parts(result.parts), mask) for mask, result in _unmasked(rest, measure.masked)]
    masks = []
    for cost, mask in sorted(costs, key=lambda item: -item[0]):
        if calibrate(tokens, factor=factor) <= policy.max_tokens or cost <= 2 * MASK_TOKENS:
            break
        masks.append(mask)
        tokens -= cost - MASK_TOKENS
    return masks


def _stretches(turns: Groups, measure: _Measure, policy: CompressionPolicy, *, budget: int) -> tuple[SummarySpan, ...]:
    # The turns before the newest one with an input, and all entries since.
    with_input = (place for place in range(len(turns) - 1, -1, -1) if any(map(_is_input, turns[place])))
    place = next(with_input, len(turns) - 1)
    older, current = [*turns[:place]], _flat(turns[place:])
    # The current task is the input that starts the turn.
    task = current[:1] if _is_input(current[0]) and not any(map(_is_input, current[1:])) else ()
    steps = split_steps(current[len(task) :])
    budget -= measure(task)
    # Without a task at its start, the newest input is within the turn: steps before it may be summarised.
    newest = max((place for place, step in enumerate(steps) if any(map(_is_input, step))), default=len(steps) - 1)
    count, budget = _fit_newest(steps, measure, budget, least=len(steps) - newest)
    between = steps[: len(steps) - count]
    if not between:
        most = None if policy.keep_turns is None else max(0, policy.keep_turns - 1)
        count, _ = _fit_newest(older, measure, budget, least=0, most=most)
        older = older[: len(older) - count]
    candidates = [(older, False), (between, True)] if task else [([*older, *between], False)]
    spans = (_stretch(groups, measure, within_turn=within) for groups, within in candidates)
    # Not so little that a summary would be longer, nor only an earlier summary.
    return tuple(one for one in spans if one and one.tokens >= policy.least and one.messages > 0)


def _is_input(node: Node) -> bool:
    return isinstance(node.entry, ModelInput) and may_begin_turn(node.entry) and has_content(node.entry.parts)


def _fit_newest(
    groups: Groups, measure: _Measure, budget: int, *, least: int, most: int | None = None
) -> tuple[int, int]:
    """How many groups from the end fit, and the remaining budget."""
    count = 0
    for group in reversed(groups):
        cost = measure(group)
        if count >= least and (cost > budget or count == most):
            break
        count, budget = count + 1, budget - cost
    return count, budget


def _flat(groups: Groups) -> tuple[Node, ...]:
    return tuple(chain.from_iterable(groups))


def _stretch(groups: Groups, measure: _Measure, *, within_turn: bool) -> SummarySpan | None:
    pieces = _flat(groups)
    if not pieces:
        return None
    spans = [_span(node) for node in pieces]
    return SummarySpan(
        first=min(first for first, _ in spans),
        last=max(last for _, last in spans),
        pieces=pieces,
        tokens=measure(pieces),
        within_turn=within_turn,
        groups=tuple((len(group), measure(group)) for group in groups),
    )


def _span(node: Node) -> tuple[int, int]:
    return span_of(node) if isinstance(node.entry, Summary) else (node.seq, node.seq)


AFTER_THAT = "(What came after this, up to entry "
LEFT_OUT = AFTER_THAT + "{last}, was left out to save space. It is still stored.)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOutcome:
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
