"""What is masked, what is summarised and what stays: decided from a snapshot alone, without a model.

Old bulky results are masked first; the newest stay whole. If that is not enough, or somebody asked for a summary, the
oldest turns become one stretch that a summary will stand for. The newest turns stay as they are; of the newest one at
least the task that began it and its last step do, and the steps between them may become a stretch of their own. A cut
is always between two turns or two steps, so a call and its results are never on both sides of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from history.context.messages import has_content
from history.context.rendering import fixed_tokens
from history.context.summaries import Masks, masked_results, pieces_of, span_of
from history.context.tokens import calibrate, estimate_parts
from history.context.turns import may_begin_turn, prepare, split_steps, split_turns
from history.context.values import ContextOptions, Snapshot
from history.entries import CONVERSATION, MaskedResult, ModelInput, Node, Summary, ToolResult, ToolResults

# What stands in the place of a masked result costs about this much itself.
MASK_TOKENS = 45


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionPolicy:
    """How small a context is to become. Tokens are the model's own, as far as the calibration knows them.

    ``target`` is what should be left, ``room`` more than which must not be. ``keep_turns``: no more than so many turns
    stay as they are. ``is_asked``: somebody wants a summary now, needed or not.
    """

    target: int
    room: int
    summary_tokens: int = 800
    keep_turns: int | None = None
    keep_results: int = 3
    bulky: int = 200
    least: int = 120
    is_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarySpan:
    """Entries ``first`` … ``last``, which a summary will stand for: ``pieces`` are what is told of them now.

    ``tokens`` is without the calibration. ``groups`` are its turns or steps, between which it can be cut: of how many
    pieces and tokens each is.
    """

    first: int
    last: int
    pieces: tuple[Node, ...]
    tokens: int
    within_turn: bool = False
    groups: tuple[tuple[int, int], ...] = ()

    @property
    def messages(self) -> int:
        """How many are newly left out of the context; those behind an earlier summary were before."""
        return sum(1 for node in self.pieces if node.entry.kind in CONVERSATION)

    @property
    def earlier(self) -> tuple[Summary, ...]:
        return tuple(node.entry for node in self.pieces if isinstance(node.entry, Summary))

    def covers(self, seq: int) -> bool:
        return self.first <= seq <= self.last

    def oldest(self, tokens: int) -> SummarySpan:
        """As many of its oldest turns or steps as come to so many tokens; all of it where it has no more."""
        taken = [0, *accumulate(cost for _, cost in self.groups)]
        count = sum(1 for before in taken[:-1] if before < tokens)
        pieces = self.pieces[: sum(pieces for pieces, _ in self.groups[:count])]
        if not pieces or len(pieces) == len(self.pieces):
            return self
        last = max(_span(node)[1] for node in pieces)
        return replace(self, last=last, pieces=pieces, tokens=taken[count], groups=self.groups[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionPlan:
    """``tokens`` is what the context has now, ``kept`` what of it stays. False: there is nothing to do."""

    masks: tuple[MaskedResult, ...] = ()
    stretches: tuple[SummarySpan, ...] = ()
    tokens: int = 0
    kept: int = 0
    factor: float = 1.0
    masked: Masks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.masks or self.stretches)


@dataclass(frozen=True, slots=True)
class _Measure:
    """Tokens of parts of a path, without the calibration."""

    snapshot: Snapshot
    masked: Masks

    def __call__(self, pieces: Sequence[Node]) -> int:
        if not pieces:
            return 0
        return prepare(pieces, self.masked, session_id=self.snapshot.session_id, is_followed=True).tokens


def make_plan(snapshot: Snapshot, options: ContextOptions, policy: CompressionPolicy) -> CompressionPlan:
    """What to do so that the context becomes as small as the policy wants. Same input, same plan."""
    turns = split_turns(snapshot)
    if not turns:
        return CompressionPlan()
    masked, fixed = masked_results(snapshot.nodes), fixed_tokens(snapshot, options)
    before = fixed + sum(map(_Measure(snapshot, masked), turns))
    masks = [*_old_and_bulky(turns, masked, policy)]
    measure = _Measure(snapshot, _with(masked, masks))
    with_masks = fixed + sum(map(measure, turns))
    if not policy.is_asked and calibrate(with_masks, factor=options.calibration) <= policy.target:
        stretches: tuple[SummarySpan, ...] = ()
    else:
        budget = int((policy.target - policy.summary_tokens) / options.calibration) - fixed
        stretches = _stretches(turns, measure, policy, budget=budget)
        more = _too_big(turns, stretches, policy, measure, fixed=fixed, factor=options.calibration)
        masks, measure = [*masks, *more], _Measure(snapshot, _with(measure.masked, more))
        with_masks = fixed + sum(map(measure, turns))
    return CompressionPlan(
        masks=tuple(masks),
        stretches=stretches,
        tokens=calibrate(before, factor=options.calibration),
        kept=calibrate(with_masks - sum(one.tokens for one in stretches), factor=options.calibration),
        factor=options.calibration,
        masked=measure.masked,
    )


def stretch_between(snapshot: Snapshot, *, first: int, last: int, within_turn: bool = False) -> SummarySpan | None:
    """What is told now of the entries between two numbers, to be summarised anew; None: nothing is."""
    pieces = [node for node in pieces_of(snapshot) if first <= _span(node)[0] and _span(node)[1] <= last]
    if not pieces:
        return None
    tokens = _Measure(snapshot, masked_results(snapshot.nodes))(pieces)
    return SummarySpan(first=first, last=last, pieces=tuple(pieces), tokens=tokens, within_turn=within_turn)


# Masks.


def _with(masked: Masks, masks: Iterable[MaskedResult]) -> Masks:
    merged = {seq: [*indexes] for seq, indexes in masked.items()}
    for mask in masks:
        merged.setdefault(mask.seq, []).append(mask.index)
    return merged


def _old_and_bulky(turns: Sequence[Sequence[Node]], masked: Masks, policy: CompressionPolicy) -> Iterator[MaskedResult]:
    """All big results but the newest so many."""
    results = [*_unmasked(turns, masked)]
    for mask, result in results[: max(0, len(results) - policy.keep_results)]:
        if estimate_parts(result.parts) >= policy.bulky:
            yield mask


def _unmasked(turns: Iterable[Sequence[Node]], masked: Masks) -> Iterator[tuple[MaskedResult, ToolResult]]:
    for turn in turns:
        for node in turn:
            for index, result in enumerate(node.entry.results if isinstance(node.entry, ToolResults) else ()):
                if index not in masked.get(node.seq, ()):
                    yield MaskedResult(seq=node.seq, index=index), result


def _too_big(
    turns: Sequence[Sequence[Node]],
    stretches: Sequence[SummarySpan],
    policy: CompressionPolicy,
    measure: _Measure,
    *,
    fixed: int,
    factor: float,
) -> list[MaskedResult]:
    """What stays does not fit even so: its biggest results are masked too, however new, until it does."""
    kept = [[node for node in turn if not any(one.covers(node.seq) for one in stretches)] for turn in turns]
    tokens = fixed + sum(map(measure, kept)) + (policy.summary_tokens if stretches else 0)
    costs = [(estimate_parts(result.parts), mask) for mask, result in _unmasked(kept, measure.masked)]
    masks: list[MaskedResult] = []
    for cost, mask in sorted(costs, key=lambda item: -item[0]):
        if calibrate(tokens, factor=factor) <= policy.room or cost <= 2 * MASK_TOKENS:
            break
        masks.append(mask)
        tokens -= cost - MASK_TOKENS
    return masks


# Stretches.


def _stretches(
    turns: Sequence[Sequence[Node]], measure: Callable[[Sequence[Node]], int], policy: CompressionPolicy, *, budget: int
) -> tuple[SummarySpan, ...]:
    """What a summary will stand for: the oldest turns, and what lies between the task and the last steps."""
    older, current = _at_the_task(turns)
    task, steps = _parts_of(current)
    budget -= measure(task)
    # Without a task that began the turn, the newest input is somewhere in it: what comes before that may go.
    newest = max((place for place, step in enumerate(steps) if any(map(_is_input, step))), default=len(steps) - 1)
    kept, budget = _newest_that_fit(steps, measure, budget, at_least=len(steps) - newest)
    between = steps[: len(steps) - kept]
    if not between:
        most = None if policy.keep_turns is None else max(0, policy.keep_turns - 1)
        kept, _ = _newest_that_fit(older, measure, budget, at_least=0, at_most=most)
        older = older[: len(older) - kept]
    found = [(older, False), (between, True)] if task else [([*older, *between], False)]
    made = (_stretch(groups, measure, within_turn=within) for groups, within in found)
    return tuple(one for one in made if one and _is_worth_it(one, policy))


def _at_the_task(turns: Sequence[Sequence[Node]]) -> tuple[list[Sequence[Node]], Sequence[Node]]:
    """What came before the newest turn in which somebody said something, and all since then."""
    spoken = (place for place in range(len(turns) - 1, -1, -1) if any(map(_is_input, turns[place])))
    place = next(spoken, len(turns) - 1)
    return [*turns[:place]], _flat(turns[place:])


def _parts_of(turn: Sequence[Node]) -> tuple[Sequence[Node], list[Sequence[Node]]]:
    """The input that began the newest turn, which is the current task, and the steps that were taken since."""
    if _is_input(turn[0]) and not any(_is_input(node) for node in turn[1:]):
        return turn[:1], split_steps(turn[1:])
    return (), split_steps(turn)


def _is_input(node: Node) -> bool:
    """Something that somebody said; nothing at all is no task."""
    return isinstance(node.entry, ModelInput) and may_begin_turn(node.entry) and has_content(node.entry.parts)


def _newest_that_fit(
    groups: Sequence[Sequence[Node]],
    measure: Callable[[Sequence[Node]], int],
    budget: int,
    *,
    at_least: int,
    at_most: int | None = None,
) -> tuple[int, int]:
    """How many groups from the end there is room for, and what room is left then."""
    kept = 0
    for group in reversed(groups):
        cost = measure(group)
        if kept >= at_least and (cost > budget or kept == at_most):
            break
        kept, budget = kept + 1, budget - cost
    return kept, budget


def _flat(groups: Iterable[Sequence[Node]]) -> tuple[Node, ...]:
    return tuple(node for group in groups for node in group)


def _stretch(
    groups: Sequence[Sequence[Node]], measure: Callable[[Sequence[Node]], int], *, within_turn: bool
) -> SummarySpan | None:
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


def _is_worth_it(stretch: SummarySpan, policy: CompressionPolicy) -> bool:
    """Not of so little that a summary would be longer, nor of nothing but a summary: that was written already."""
    return stretch.tokens >= policy.least and stretch.messages > 0
