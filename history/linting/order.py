"""Checks of the message order: each tool call is answered once, directly.

Steps are put into the groups that the vendor would see: the messages of a conversation in its own language; any other
is grouped as it would be written there.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from history.linting.rules import RULES, LintFinding, finding_of
from history.linting.walker import TOOL_NAME, Step, shortened

Group = Sequence[Step]
Placed = tuple[int, Step]  # with the index of its group
ANTHROPIC, GEMINI = "anthropic-messages", "gemini-generate"


def check_order(steps: Sequence[Step], dialect: str, *, is_native: bool) -> Iterator[LintFinding]:
    groups = _as_sent(steps) if is_native and dialect in (ANTHROPIC, GEMINI) else _as_written(steps, dialect)
    yield from _pairs(groups, dialect)
    seen: set[str] = set()
    for step in steps:
        if step.kind == "call" and step.call_id:
            if step.call_id in seen:
                yield _step_finding(step, "same-id", dialect)
            seen.add(step.call_id)
    if groups and groups[0][0].speaker == "model" and _knows(dialect, "opening"):
        yield finding_of(dialect, "opening", groups[0][0].place)
    for group in groups:
        yield from _within(group, dialect)
    if not is_native and not groups:
        yield finding_of(dialect, "no-messages", "")


def check_tools(tools: Iterable[tuple[str, str]], dialect: str) -> Iterator[LintFinding]:
    seen: set[str] = set()
    for name, place in tools:
        if not TOOL_NAME.fullmatch(name):
            yield finding_of(dialect, "tool-name", place, name=shortened(name))
        if name in seen:
            yield finding_of(dialect, "same-tool", place, name=shortened(name))
        seen.add(name)


def _knows(dialect: str, name: str) -> bool:
    return f"{dialect}/{name}" in RULES


def _as_sent(steps: Sequence[Step]) -> list[Group]:
    return [list(group) for _, group in groupby(steps, key=lambda step: step.message)]


def _as_written(steps: Sequence[Step], dialect: str) -> list[Group]:
    """The steps as an encoder writes them, in the groups that the vendor then sees."""
    ordered = [step for group in _as_sent(steps) for step in sorted(group, key=lambda step: step.kind != "result")]
    least = 1 if dialect == ANTHROPIC else 0
    carried = [step for step in ordered if step.kind != "said" or step.weight > least]
    while carried and carried[0].speaker == "system":
        carried.pop(0)
    return [list(group) for _, group in groupby(carried, key=lambda step: _side(step, dialect))]


def _side(step: Step, dialect: str) -> object:
    """What neighbours have in common that end up in one message."""
    if step.kind == "result":
        return "user" if dialect == GEMINI else "results"
    if step.speaker == "model":
        return "model" if dialect in (ANTHROPIC, GEMINI) else (step.message, "model")
    return "user" if dialect == GEMINI else (step.message, step.speaker)


def _pairs(groups: Sequence[Group], dialect: str) -> Iterator[LintFinding]:
    """Match results with the calls of the group before; what is left over is late, twice, or has no counterpart."""
    open_calls, unanswered = _Calls(dialect), _Calls(dialect)
    strays: list[Placed] = []
    answered: set[str] = set()
    for place, group in enumerate(groups):
        for result in (step for step in group if step.kind == "result"):
            if (taken := open_calls.take(result, before=place)) is None:
                strays.append((place, result))
                continue
            call = taken[1]
            answered |= {call.call_id, call.name}
            if dialect == GEMINI and result.name and result.name != call.name:
                given, name = shortened(result.name), shortened(call.name)
                yield finding_of(dialect, "result-name", result.place, given=given, name=name)
            if dialect == GEMINI and call.call_id and result.call_id and call.call_id != result.call_id:
                yield finding_of(dialect, "result-id", result.place)
        unanswered.add(open_calls.waiting.values())
        open_calls = _Calls(dialect)
        open_calls.add((place, step) for step in group if step.kind == "call")
    unanswered.add(open_calls.waiting.values())
    for place, result in strays:
        yield _stray(place, result, unanswered, answered, groups, dialect)
    for _, call in unanswered.waiting.values():
        yield _step_finding(call, "no-answer", dialect)


class _Calls:
    """Calls without a result, looked up by id, or by name."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.waiting: dict[int, Placed] = {}
        self.by_id: defaultdict[str, deque[Placed]] = defaultdict(deque)
        self.by_name: defaultdict[str, deque[Placed]] = defaultdict(deque)

    def add(self, calls: Iterable[Placed]) -> None:
        for placed in calls:
            self.waiting[id(placed[1])] = placed
            self.by_id[placed[1].call_id].append(placed)
            self.by_name[placed[1].name].append(placed)

    def take(self, result: Step, *, before: int) -> Placed | None:
        """The oldest call that this result can answer. Gemini goes by names, the others by ids."""
        call = self._oldest(self.by_id.get(result.call_id), before) if result.call_id else None
        if call is None and result.name and (self.dialect == GEMINI or not result.call_id):
            call = self._oldest(self.by_name.get(result.name), before)
        if call is not None:
            del self.waiting[id(call[1])]
        return call

    def _oldest(self, calls: deque[Placed] | None, before: int) -> Placed | None:
        while calls and id(calls[0][1]) not in self.waiting:
            calls.popleft()
        return calls[0] if calls and calls[0][0] < before else None


def _stray(
    place: int, result: Step, unanswered: _Calls, answered: set[str], groups: Sequence[Group], dialect: str
) -> LintFinding:
    """The finding for a result that is not directly after its call."""
    taken = unanswered.take(result, before=place)
    if taken is None:
        is_second = (result.call_id or result.name) in answered
        return _step_finding(result, "answered-twice" if is_second else "orphan", dialect)
    asked_at, call = taken
    between = groups[asked_at + 1 : place] if _knows(dialect, "split") else []
    is_split = bool(between) and all(step.kind == "result" for group in between for step in group)
    return _step_finding(result, "split" if is_split else "late-answer", dialect, call.name)


def _step_finding(step: Step, name: str, dialect: str, tool: str = "") -> LintFinding:
    tool = shortened(tool or step.name or "?")
    return finding_of(dialect, name, step.place, id=shortened(step.call_id or "?"), name=tool)


def _within(group: Group, dialect: str) -> Iterator[LintFinding]:
    """The order inside what is sent as one message."""
    for before, step in pairwise(group):
        if before.kind == "said" and step.kind == "result" and _knows(dialect, "results-first"):
            yield finding_of(dialect, "results-first", step.place)
    call: Step | None = None
    for step in group:
        call = step if step.kind == "call" else call
        if call and step.kind == "said" and step.message != call.message and _knows(dialect, "calls-last"):
            yield finding_of(dialect, "calls-last", step.place)
