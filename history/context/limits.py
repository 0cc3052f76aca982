"""The newest turns that fit the limits; inside the newest one, its last steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from history.context.entries import ContextEntry, Role
from history.context.repair import Code, Remark
from history.context.tokens import calibrate
from history.context.turns import ContextTurn, turn_of
from history.context.values import ContextOptions


@dataclass(slots=True)
class _Choice:
    turns: list[ContextTurn] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    hit_a_limit: bool = False

    def stop(self, code: Code, limit: int | None) -> _Choice:
        self.hit_a_limit = True
        self.remarks.append(Remark(code=code, values={"limit": limit}))
        return self


def choose(turns: Iterator[ContextTurn], *, fixed: int, options: ContextOptions) -> _Choice:
    """The newest turns that fit all limits, oldest first. The newest one is kept whatever it costs."""
    choice = _Choice()
    tokens, messages = fixed, 0
    for turn in turns:
        if not choice.turns:
            turn = _cut_inside(turn, choice, options)
        tokens += turn.tokens
        messages += len(turn.entries)
        if choice.turns and _is_above(messages, options.max_messages):
            return choice.stop(Code.LIMIT_MESSAGES, options.max_messages)
        if _is_above(calibrate(tokens, factor=options.calibration), options.max_tokens):
            if choice.turns:
                return choice.stop(Code.LIMIT_TOKENS, options.max_tokens)
            choice.remarks.append(Remark(code=Code.OVER_TOKENS, values={"limit": options.max_tokens}))
        choice.turns.insert(0, turn)
        if len(choice.turns) == options.max_turns:
            return choice.stop(Code.LIMIT_TURNS, options.max_turns)
    return choice


def _is_above(amount: int, limit: int | None) -> bool:
    return limit is not None and amount > limit


def _cut_inside(turn: ContextTurn, choice: _Choice, options: ContextOptions) -> ContextTurn:
    """The newest turn within ``max_messages``: what began it, and as many of its last steps as there is room for.

    A step is a message, or calls and their results together, so that the cut never separates them.
    """
    if not _is_above(len(turn.entries), options.max_messages):
        return turn
    first = turn.entries[:1] if turn.entries[0].role is Role.MODEL_INPUT else ()
    steps = _steps(turn.entries[len(first) :])
    kept: list[ContextEntry] = []
    while steps and (not kept or len(first) + len(steps[-1]) + len(kept) <= (options.max_messages or 0)):
        kept[:0] = steps.pop()
    values = {"limit": options.max_messages}
    if steps:
        choice.remarks.append(Remark(code=Code.TURN_CUT, values=values))
    if _is_above(len(first) + len(kept), options.max_messages):
        choice.remarks.append(Remark(code=Code.OVER_MESSAGES, values=values))
    entries = (*first, *kept)
    return turn_of(entries, turn.remarks)


def _steps(entries: Sequence[ContextEntry]) -> list[list[ContextEntry]]:
    steps: list[list[ContextEntry]] = []
    for entry in entries:
        if entry.role is Role.TOOL_RESULT and steps:
            steps[-1].append(entry)
        else:
            steps.append([entry])
    return steps
