"""Checks of the message order: each tool call is answered once, directly.

Steps are put into groups, as the vendor would see them: for a conversation in its own language these are its messages.
One that comes from elsewhere is grouped as it would be written there: results before what else was said in the same
message, and for those who want turns everything that one side says in a row.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from history.linting.rules import knows, rule
from history.linting.values import LintFinding
from history.linting.walker import TOOL_NAME, Step, shortened

Group = Sequence[Step]
ANTHROPIC, GEMINI = "anthropic-messages", "gemini-generate"


def check_order(steps: Sequence[Step], dialect: str, *, is_native: bool) -> Iterator[LintFinding]:
    groups = _as_sent(steps) if is_native and dialect in (ANTHROPIC, GEMINI) else _as_written(steps, dialect)
    yield from _pairs(groups, dialect)
    yield from _same_ids(steps, dialect)
    yield from _opening(groups, dialect)
    for group in groups:
        yield from _within(group, dialect)
    if not is_native and not groups:
        yield _finding(dialect, "no-messages", "")


def check_tools(tools: Iterable[tuple[str, str]], dialect: str) -> Iterator[LintFinding]:
    seen: set[str] = set()
    for name, place in tools:
        if not TOOL_NAME.fullmatch(name):
            yield _finding(dialect, "tool-name", place, name=shortened(name))
        if name in seen:
            yield _finding(dialect, "same-tool", place, name=shortened(name))
        seen.add(name)


def _finding(dialect: str, name: str, place: str, /, **about: str) -> LintFinding:
    return LintFinding(rule=rule(dialect, name), place=place, about=about)


# Groups.


def _as_sent(steps: Sequence[Step]) -> list[Group]:
    return [list(group) for _, group in groupby(steps, key=lambda step: step.message)]


def _as_written(steps: Sequence[Step], dialect: str) -> list[Group]:
    """The steps as an encoder writes them, in the groups that the vendor then sees."""
    ordered = [step for group in _as_sent(steps) for step in sorted(group, key=lambda step: step.kind != "result")]
    carried = [step for step in ordered if _is_carried(step, dialect)]
    while carried and carried[0].speaker == "system":
        carried.pop(0)
    return [list(group) for _, group in groupby(carried, key=lambda step: _side(step, dialect))]


def _is_carried(step: Step, dialect: str) -> bool:
    return step.kind != "said" or step.weight > (1 if dialect == ANTHROPIC else 0)


def _side(step: Step, dialect: str) -> object:
    """What neighbours have in common that end up in one message."""
    if step.kind == "result":
        return "user" if dialect == GEMINI else "results"
    if step.speaker == "model":
        return "model" if dialect in (ANTHROPIC, GEMINI) else (step.message, "model")
    return "user" if dialect == GEMINI else (step.message, step.speaker)


# Calls and results.


def _pairs(groups: Sequence[Group], dialect: str) -> Iterator[LintFinding]:
    """Match results with the calls of the group before; what is left over is late, twice, or has no counterpart."""
    open_calls, unanswered = _Calls(dialect), _Calls(dialect)
    strays: list[tuple[int, Step]] = []
    answered: set[str] = set()
    for place, group in enumerate(groups):
        for result in (step for step in group if step.kind == "result"):
            if (taken := open_calls.take(result, before=place)) is None:
                strays.append((place, result))
            else:
                answered |= {taken[1].call_id, taken[1].name}
                yield from _alike(taken[1], result, dialect)
        unanswered.add(open_calls.rest())
        open_calls = _Calls(dialect)
        open_calls.add((place, step) for step in group if step.kind == "call")
    unanswered.add(open_calls.rest())
    for place, result in strays:
        yield _stray(place, result, unanswered, answered, groups, dialect)
    for _, call in unanswered.rest():
        yield _step_finding(call, "no-answer", dialect)


Placed = tuple[int, Step]


class _Calls:
    """Calls without a result, with the index of their group; looked up by id, or by name."""

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

    def rest(self) -> list[Placed]:
        return list(self.waiting.values())

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


def _alike(call: Step, result: Step, dialect: str) -> Iterator[LintFinding]:
    if dialect != GEMINI:
        return
    if result.name and result.name != call.name:
        yield _finding(dialect, "result-name", result.place, given=shortened(result.name), name=shortened(call.name))
    if call.call_id and result.call_id and call.call_id != result.call_id:
        yield _finding(dialect, "result-id", result.place)


def _stray(
    place: int, result: Step, unanswered: _Calls, answered: set[str], groups: Sequence[Group], dialect: str
) -> LintFinding:
    """The finding for a result that is not directly after its call."""
    taken = unanswered.take(result, before=place)
    if taken is None:
        is_second = (result.call_id or result.name) in answered
        return _step_finding(result, "answered-twice" if is_second else "orphan", dialect)
    asked_at, call = taken
    between = groups[asked_at + 1 : place] if knows(dialect, "split") else []
    is_split = bool(between) and all(step.kind == "result" for group in between for step in group)
    return _step_finding(result, "split" if is_split else "late-answer", dialect, name=call.name)


def _step_finding(step: Step, name: str, dialect: str, /, **known: str) -> LintFinding:
    about = {"id": shortened(step.call_id or "?"), "name": shortened(known.get("name") or step.name or "?")}
    return _finding(dialect, name, step.place, **about)


def _same_ids(steps: Sequence[Step], dialect: str) -> Iterator[LintFinding]:
    seen: set[str] = set()
    for step in steps:
        if step.kind == "call" and step.call_id:
            if step.call_id in seen:
                yield _step_finding(step, "same-id", dialect)
            seen.add(step.call_id)


# Who speaks when.


def _opening(groups: Sequence[Group], dialect: str) -> Iterator[LintFinding]:
    if groups and groups[0][0].speaker == "model" and knows(dialect, "opening"):
        yield _finding(dialect, "opening", groups[0][0].place)


def _within(group: Group, dialect: str) -> Iterator[LintFinding]:
    """The order inside what is sent as one message."""
    for before, step in pairwise(group):
        if before.kind == "said" and step.kind == "result" and knows(dialect, "results-first"):
            yield _finding(dialect, "results-first", step.place)
    call: Step | None = None
    for step in group:
        call = step if step.kind == "call" else call
        if call and step.kind == "said" and step.message != call.message and knows(dialect, "calls-last"):
            yield _finding(dialect, "calls-last", step.place)
