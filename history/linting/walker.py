"""Base of the format checks, and the rules of order: calls, results and turns.

A walk of each dialect makes findings and steps. The order is checked on steps, so that each rule is written once.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Literal, NamedTuple

from history.dialects.json_access import items, string
from history.entries import EMPTY, JsonObject
from history.linting.rules import RULES, LintFinding, finding_of
from history.text.lazy import LazyText, gettext_noop as _

Speaker = Literal["user", "model", "system"]
# The expected types that the rule "malformed" names.
A_LIST, A_TEXT, OBJECTS = LazyText(_("a list")), LazyText(_("a string")), LazyText(_("objects"))
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Step(NamedTuple):
    """A call, a result or other content. Steps that are sent as one message have its number."""

    kind: Literal["call", "result", "message"]
    speaker: Speaker
    place: str
    message: int
    call_id: str = ""
    name: str = ""
    weight: int = 2  # 0 for content that no other vendor accepts, 1 for white space


class LintWalk:
    """The findings and steps of one conversation. Subclasses check the request format of a dialect."""

    dialect = ""
    needs_visible_text = False  # white space counts as an empty text

    def __init__(self, body: JsonObject = EMPTY) -> None:
        self.findings: list[LintFinding] = []
        self.steps: list[Step] = []
        self.tools: list[tuple[str, str]] = []  # name, place
        self.message = 0
        self.role = ""
        self.speaker: Speaker = "user"
        self.walk(body)

    def walk(self, body: JsonObject) -> None:
        """Check the request. A stored session has none."""

    def find(self, name: str, place: str, /, **about: object) -> None:
        self.findings.append(finding_of(self.dialect, name, place, **about))

    def needs(self, is_met: bool, name: str, place: str, /, **about: object) -> bool:
        if not is_met:
            self.find(name, place, **about)
        return is_met

    def each(self, values: object, place: str) -> Iterator[tuple[str, JsonObject]]:
        """The objects of a list with their places; other values are reported."""
        for number, value in enumerate(items(values)):
            if self.needs(isinstance(value, Mapping), "malformed", f"{place}[{number}]", what=place, wanted=OBJECTS):
                yield f"{place}[{number}]", value

    def check_messages(self, body: JsonObject) -> None:
        self.needs(bool(string(body.get("model"))), "no-model", "model")
        messages = body.get("messages")
        if self.needs(isinstance(messages, list), "malformed", "messages", what="messages", wanted=A_LIST):
            self.needs(bool(messages), "no-messages", "messages")

    def begin_message(self, role: str) -> None:
        self.role = role
        self.message += 1
        self.speaker = speaker_of(role)

    def text(self, text: object, place: str) -> None:
        if self.needs(isinstance(text, str), "malformed", place, what="text", wanted=A_TEXT):
            weight = weight_of(str(text))
            self.needs(weight > (1 if self.needs_visible_text else 0), "empty-text", place)
            self.content(place, weight=weight)

    def content(self, place: str, *, weight: int = 2) -> None:
        self.steps.append(Step("message", self.speaker, place, self.message, weight=weight))

    def call(self, place: str, *, call_id: str, name: str) -> None:
        self.steps.append(Step("call", "model", place, self.message, call_id, name))

    def result(self, place: str, *, call_id: str, name: str = "") -> None:
        self.steps.append(Step("result", "user", place, self.message, call_id, name))

    def offer(self, name: object, place: str) -> None:
        self.tools.append((string(name), place))


def speaker_of(role: str) -> Speaker:
    return "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"


def weight_of(text: str) -> int:
    return 2 if text.strip() else 1 if text else 0


def shortened(text: object) -> str:
    """Part of a sentence: the input may be of any length."""
    words = str(text)
    return words if len(words) <= 60 else words[:59] + "…"


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
    carried = [step for step in ordered if step.kind != "message" or step.weight > least]
    while carried and carried[0].speaker == "system":
        carried.pop(0)
    return [list(group) for _, group in groupby(carried, key=lambda step: _side(step, dialect))]


def _side(step: Step, dialect: str) -> object:
    """The key of neighbours that the vendor sees as one message."""
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
    for _seq, call in unanswered.waiting.values():
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
        if before.kind == "message" and step.kind == "result" and _knows(dialect, "results-first"):
            yield finding_of(dialect, "results-first", step.place)
    call: Step | None = None
    for step in group:
        call = step if step.kind == "call" else call
        if call and step.kind == "message" and step.message != call.message and _knows(dialect, "calls-last"):
            yield finding_of(dialect, "calls-last", step.place)
