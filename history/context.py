"""From the history to what a model is to be told: deterministic, read-only, cut at turns, repaired with a report.

``render_context(snapshot, options)`` splits the path into turns, puts summaries in place of what they stand for, lets
through what a model may see, repairs each turn by itself and keeps as many of the newest turns as the limits allow.
Because a turn is prepared without a look at any other, the newest part of a path renders like the whole of it, and
``reaches_far_enough`` can tell a loader when to stop reading.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any, Self

from history.context_entries import ContextEntry as ContextEntry
from history.context_entries import Role as Role
from history.entries import (
    Entry,
    Gap,
    ModelInput,
    ModelOutput,
    Node,
    OtherPart,
    Part,
    Retracted,
    Summary,
    Text,
    ToolDefinition,
    ToolResults,
    ToolsOffered,
    entry_to_json,
)
from history.repair import Code, Remark, Report, pair, unpaired, with_opening, with_unique_ids
from history.tokens import calibrate, estimate_context, estimate_entry, estimate_text

# What may become a message to a model: to pass a debug log or a notebook edit is an error of type.
Renderable = ModelInput | ModelOutput | ToolResults | Summary

RENDERER_VERSION = "1"

# What the notebook says before anybody has written into it.
NO_NOTEBOOK = "（尚无内容）"

# The channel of an instruction that came in the middle of a conversation.
SYSTEM_CHANNEL = "system"

FINISH_TOOL = "finish_task"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A session as it was at one moment, along the path to one leaf. Later appends do not alter it.

    ``nodes`` are the entries of the path, oldest first. A loader may leave out what cannot matter: entries that a
    summary stands for (``summarised_ranges``), and everything older than ``loaded_from`` except summaries and
    retractions, which must always be there. ``loaded_from`` 0 means that nothing else was left out. An entry whose
    body was dropped by policy is there as ``dropped_entry(…)``.
    """

    session_id: str
    version: int
    nodes: tuple[Node, ...]
    loaded_from: int = 0
    system_instruction: str = ""
    notebook: str = NO_NOTEBOOK
    tools: tuple[ToolDefinition, ...] = ()

    @property
    def is_whole(self) -> bool:
        return self.loaded_from == 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "tools", tuple(self.tools))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextOptions:
    """Everything that rendering depends on besides the snapshot. The three limits hold together; None is no limit.

    ``environment`` is the text of a first message that is made anew for each call and never stored. ``calibration``
    multiplies token estimates by what this model's own counts have shown.
    """

    max_turns: int | None = 5
    max_messages: int | None = None
    max_tokens: int | None = None
    inject_notebook: bool = True
    live_screen: str | None = None
    environment: str | None = None
    calibration: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_messages", "max_tokens"):
            limit = getattr(self, name)
            if limit is not None and limit < 1:
                raise ValueError(f"{name} is {limit}: give 1 or more, or None for no limit")
        if not self.calibration > 0:
            raise ValueError(f"calibration is {self.calibration}: give a number above 0")

    def to_json(self) -> dict[str, Any]:
        return {"renderer": RENDERER_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a model is to be told, and what was done to it on the way. ``tokens`` estimates all of it together."""

    entries: tuple[ContextEntry, ...]
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    report: Report = field(default_factory=Report)
    tokens: int = 0


class InvalidContextError(ValueError):
    """These entries must not be sent; the text says which and why."""


# Rendering.


def render_context(snapshot: Snapshot, options: ContextOptions) -> Context:
    """What a model is to be told. Same snapshot and same options, same bytes."""
    system = _system_text(snapshot, options)
    fixed = _fixed_tokens(snapshot, options, system)
    chosen = _choose(_turns_newest_first(snapshot), fixed=fixed, options=options)
    remarks = [remark for turn in chosen.turns for remark in turn.remarks]
    said = [entry for turn in chosen.turns for entry in turn.entries]
    entries = with_opening([*_environment(options), *with_unique_ids(said, remarks=remarks)], remarks=remarks)
    entries = _with_live_screen(entries, options.live_screen, remarks)
    validate(entries)
    return Context(
        entries=entries,
        system=system,
        tools=snapshot.tools,
        report=Report((*remarks, *chosen.remarks)),
        tokens=calibrate(fixed + sum(turn.tokens for turn in chosen.turns), factor=options.calibration),
    )


def reaches_far_enough(snapshot: Snapshot, options: ContextOptions) -> bool:
    """Whether nothing older than what this snapshot holds can matter under these limits.

    A loader reads the path backwards and asks after each page: ``loaded_from`` is the oldest seq it has read (0 once
    it came to the start). Let each page be twice as long as the one before, so that asking stays cheap.
    """
    if snapshot.is_whole:
        return True
    fixed = _fixed_tokens(snapshot, options, _system_text(snapshot, options))
    return _choose(_turns_newest_first(snapshot), fixed=fixed, options=options).hit_a_limit


def _system_text(snapshot: Snapshot, options: ContextOptions) -> str:
    """The instruction, and the notebook if somebody has written into it."""
    notebook = snapshot.notebook.strip()
    if not options.inject_notebook or notebook in ("", NO_NOTEBOOK):
        return snapshot.system_instruction
    return f"{snapshot.system_instruction}\n\n[Memory Notebook]\n{notebook}".strip()


def environment_text(parts: Iterable[str]) -> str:
    """The text of the first message: what surrounds the conversation, a reminder, and that the setting-up is over."""
    closing = (
        "Reminder: Do not return an empty response when a tool call is required.",
        "My setup is complete. I will provide my first command in the next turn.",
    )
    return "\n\n".join((*parts, *closing)).strip()


def _environment(options: ContextOptions) -> tuple[ContextEntry, ...]:
    if not options.environment:
        return ()
    return (ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=options.environment),)),)


def _fixed_tokens(snapshot: Snapshot, options: ContextOptions, system: str) -> int:
    """What is sent whatever the turns are; not yet multiplied by the calibration."""
    environment = _environment(options)
    return estimate_context(environment, system=system, tools=snapshot.tools) + estimate_text(options.live_screen or "")


def _with_live_screen(
    entries: tuple[ContextEntry, ...], live_screen: str | None, remarks: list[Remark]
) -> tuple[ContextEntry, ...]:
    """Decorate the latest input or result, and no other."""
    if not live_screen:
        return entries
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].role in (Role.MODEL_INPUT, Role.TOOL_RESULT):
            decorated = entries[place].with_live_screen(live_screen)
            return (*entries[:place], decorated, *entries[place + 1 :])
    remarks.append(Remark(code=Code.LIVE_SCREEN_LEFT_OUT))
    return entries


# Limits.


@dataclass(frozen=True, slots=True)
class _Turn:
    """A turn ready to be sent, and the remarks on how it became so."""

    entries: tuple[ContextEntry, ...]
    remarks: tuple[Remark, ...]
    tokens: int


def _turn(entries: tuple[ContextEntry, ...], remarks: Sequence[Remark]) -> _Turn:
    """Counted as if it were the oldest that is sent, when an opening may have to be put before it."""
    tokens = sum(estimate_entry(entry) for entry in with_opening(entries, remarks=[]))
    return _Turn(entries, tuple(remarks), tokens)


@dataclass(slots=True)
class _Choice:
    turns: list[_Turn] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    hit_a_limit: bool = False

    def stop(self, code: Code, limit: int | None) -> _Choice:
        self.hit_a_limit = True
        self.remarks.append(Remark(code=code, values={"limit": limit}))
        return self


def _choose(turns: Iterator[_Turn], *, fixed: int, options: ContextOptions) -> _Choice:
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


def _cut_inside(turn: _Turn, choice: _Choice, options: ContextOptions) -> _Turn:
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
    return _turn(entries, turn.remarks)


def _steps(entries: Sequence[ContextEntry]) -> list[list[ContextEntry]]:
    steps: list[list[ContextEntry]] = []
    for entry in entries:
        if entry.role is Role.TOOL_RESULT and steps:
            steps[-1].append(entry)
        else:
            steps.append([entry])
    return steps


# Turns.


def _turns_newest_first(snapshot: Snapshot) -> Iterator[_Turn]:
    """Each turn is prepared when it is asked for, so that what the limits leave out costs next to nothing."""
    masked = masked_results(snapshot.nodes)
    is_followed = False
    for pieces in reversed(_split(_pieces(snapshot), is_whole=snapshot.is_whole)):
        yield _prepare(pieces, masked, session_id=snapshot.session_id, is_followed=is_followed)
        is_followed = True


def _split(pieces: Sequence[Node], *, is_whole: bool) -> list[Sequence[Node]]:
    """Cut a path into turns. Where the start of the path is missing, the turns that we cannot be sure of are left out.

    A turn begins at a summary, or at an input that somebody gave: not at an internal one, and not at one that came
    while calls of the answer before it were still open and were answered after it.
    """
    starts: list[int] = []
    answered_later = _results_ahead(pieces)
    open_calls: set[str] = set()
    knows_calls = is_whole
    for place, node in enumerate(pieces):
        if isinstance(node.entry, ModelOutput):
            open_calls, knows_calls = {call.call_id for call in node.entry.tool_requests}, True
        elif isinstance(node.entry, ToolResults):
            open_calls -= {result.call_id for result in node.entry.results}
        elif isinstance(node.entry, Summary):
            open_calls, knows_calls = set(), True
        if is_whole and place == 0:
            starts.append(place)
        elif _may_begin_turn(node.entry):
            if answered_later[place] and not knows_calls:
                starts.clear()
            elif not open_calls & answered_later[place]:
                starts.append(place)
    return [pieces[start:end] for start, end in pairwise((*starts, len(pieces)))]


def _results_ahead(pieces: Sequence[Node]) -> list[frozenset[str]]:
    """For each place, the calls that are answered after it and before the model speaks again."""
    ahead: list[frozenset[str]] = [frozenset()] * len(pieces)
    seen: frozenset[str] = frozenset()
    for place in range(len(pieces) - 1, -1, -1):
        entry = pieces[place].entry
        if isinstance(entry, ToolResults):
            seen = seen | {result.call_id for result in entry.results}
        elif isinstance(entry, ModelOutput | Summary):
            seen = frozenset()
        ahead[place] = seen
    return ahead


def _may_begin_turn(entry: Entry) -> bool:
    if isinstance(entry, ModelInput):
        return not entry.is_internal and entry.channel != SYSTEM_CHANNEL
    if isinstance(entry, Gap):
        return entry.metadata.get("dropped") == ModelInput.kind
    return isinstance(entry, Summary)


def _prepare(pieces: Sequence[Node], masked: Masks, *, session_id: str, is_followed: bool) -> _Turn:
    remarks: list[Remark] = []
    rendered = list(_rendered(pieces, masked, session_id=session_id, remarks=remarks))
    entries = pair(curate(rendered, remarks=remarks), remarks=remarks, is_followed=is_followed)
    return _turn(entries, remarks)


def _rendered(
    pieces: Sequence[Node], masked: Masks, *, session_id: str, remarks: list[Remark]
) -> Iterator[ContextEntry]:
    for is_gap, group in groupby(pieces, key=lambda node: isinstance(node.entry, Gap)):
        if is_gap:
            yield _gap_note(list(group))
            continue
        for node in group:
            if _is_empty_failure(node.entry):
                remarks.append(Remark(code=Code.FAILED_ANSWER_LEFT_OUT, seq=node.seq))
            elif isinstance(node.entry, Renderable):
                entry = to_context(node.entry, seq=node.seq)
                yield _with_masks(entry, masked.get(node.seq, ()), session_id=session_id)


# From one entry to one message.


def to_context(entry: Renderable, *, seq: int) -> ContextEntry:
    """The message that this entry, number ``seq`` of its session, is to a model."""
    if isinstance(entry, ModelInput):
        role = Role.SYSTEM if entry.channel == SYSTEM_CHANNEL else Role.MODEL_INPUT
        return ContextEntry(role=role, parts=entry.parts, origin=(seq,))
    if isinstance(entry, ModelOutput):
        return ContextEntry(role=Role.MODEL_OUTPUT, parts=entry.parts, origin=(seq,))
    if isinstance(entry, ToolResults):
        return ContextEntry(role=Role.TOOL_RESULT, results=entry.results, origin=(seq,))
    text = f"[Summary of the conversation so far, entries {entry.first} to {entry.last}]\n\n{entry.summary}"
    return ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=text),), origin=(seq,))


def _is_empty_failure(entry: Entry) -> bool:
    """An answer that broke off before it said anything. Its error text is for people and never sent to a model."""
    if not isinstance(entry, ModelOutput) or entry.status == "complete":
        return False
    return not any(_has_content(part) for part in entry.parts)


def _has_content(part: Part) -> bool:
    return not isinstance(part, Text) or bool(part.text.strip())


def _gap_note(nodes: Sequence[Node]) -> ContextEntry:
    """Gaps in a row are one message that says so."""
    reasons = dict.fromkeys(node.entry.text for node in nodes if node.entry.text)
    count = "An entry is" if len(nodes) == 1 else f"{len(nodes)} entries are"
    text = f"[{count} missing here: {'; '.join(reasons) or 'unknown'}]"
    return ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=text),), origin=tuple(node.seq for node in nodes))


def dropped_entry(kind: str, *, at: datetime) -> Gap:
    """What stands in a snapshot for an entry of this kind whose body was dropped by policy."""
    return Gap(at=at, reason="dropped by policy", metadata={"dropped": kind})


# Summaries, and the results that they mask.

Masks = Mapping[int, Sequence[int]]
NO_RANGE = (0, 0)


def active_summaries(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The summaries among these entries of one path that nobody has retracted, oldest first."""
    nodes = tuple(nodes)
    retracted = {node.entry.seq for node in nodes if isinstance(node.entry, Retracted)}
    return tuple(node for node in nodes if isinstance(node.entry, Summary) and node.seq not in retracted)


def summarised_ranges(nodes: Iterable[Node]) -> tuple[tuple[int, int], ...]:
    """The ranges of seq (first, last) that summaries stand for, merged, oldest first: no need to load what lies there.

    Summaries and retractions inside such a range are needed all the same.
    """
    return _merged(_range(node) for node in active_summaries(nodes))


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if (first, last) == NO_RANGE:
            continue
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _range(node: Node) -> tuple[int, int]:
    """What a summary stands for: never anything that came after it."""
    if not isinstance(node.entry, Summary):
        return NO_RANGE
    first, last = node.entry.first, min(node.entry.last, node.seq - 1)
    return (first, last) if 0 < first <= last else NO_RANGE


def _pieces(snapshot: Snapshot) -> list[Node]:
    """What is said along the path: entries, or the summary that stands for them, where the first of them stood.

    Of several summaries for one entry the newest counts; one that newer ones cover wholly is not used.
    """
    placed: list[tuple[int, Node]] = []
    covered: tuple[tuple[int, int], ...] = ()
    for node in reversed(active_summaries(snapshot.nodes)):
        place = _first_outside(_range(node), covered)
        if place is not None and place >= snapshot.loaded_from:
            placed.append((place, node))
        covered = _merged((*covered, _range(node)))
    said = (node for node in snapshot.nodes if isinstance(node.entry, ModelInput | ModelOutput | ToolResults | Gap))
    placed.extend((node.seq, node) for node in _outside(said, covered) if node.seq >= snapshot.loaded_from)
    return [node for _, node in sorted(placed, key=lambda item: item[0])]


def _first_outside(span: tuple[int, int], covered: Iterable[tuple[int, int]]) -> int | None:
    place, last = span
    if span == NO_RANGE:
        return None
    for first, end in covered:
        if first <= place <= end:
            place = end + 1
    return place if place <= last else None


def _outside(nodes: Iterable[Node], covered: Sequence[tuple[int, int]]) -> Iterator[Node]:
    """Both are in order of seq, so one look at each is enough."""
    place = 0
    for node in nodes:
        while place < len(covered) and covered[place][1] < node.seq:
            place += 1
        if place == len(covered) or node.seq < covered[place][0]:
            yield node


def masked_results(nodes: Iterable[Node]) -> Masks:
    """Seq → the results of that entry whose texts are left out, by the summaries in force."""
    masked: dict[int, list[int]] = {}
    for node in active_summaries(nodes):
        for mask in node.entry.masks if isinstance(node.entry, Summary) else ():
            masked.setdefault(mask.seq, []).append(mask.index)
    return masked


def _with_masks(entry: ContextEntry, indexes: Sequence[int], *, session_id: str) -> ContextEntry:
    if not indexes or not entry.results:
        return entry
    results = tuple(
        replace(result, parts=(Text(text=_mask_note(session_id, entry.seq, index)),)) if index in indexes else result
        for index, result in enumerate(entry.results)
    )
    return replace(entry, results=results)


def _mask_note(session_id: str, seq: int, index: int) -> str:
    return f"[This result was left out to save room. Its full text: session {session_id}, entry {seq}, result {index}.]"


# Validation and curation.


def validate(entries: Sequence[ContextEntry]) -> None:
    """Raise :class:`InvalidContextError` where a role is unknown or a call and its results are not side by side."""
    for entry in entries:
        if entry.role not in tuple(Role):
            raise InvalidContextError(f"Role must be one of {', '.join(Role)}, but got {entry.role}.")
    if problems := unpaired(entries):
        raise InvalidContextError("; ".join(problems))


def curate(entries: Sequence[ContextEntry], *, remarks: list[Remark] | None = None) -> tuple[ContextEntry, ...]:
    """Keep what was said to the model; keep its answers in a row if all of them are valid, else none of them.

    This may leave a result without its call: repair afterwards.
    """
    kept: list[ContextEntry] = []
    for is_output, group in groupby(entries, key=lambda entry: entry.role is Role.MODEL_OUTPUT):
        run = list(group)
        if not is_output or all(is_valid(entry) for entry in run):
            kept.extend(run)
        elif remarks is not None:
            values = {"count": len(run)}
            remarks.append(Remark(code=Code.INVALID_ANSWERS_LEFT_OUT, seq=run[0].seq, values=values))
    return tuple(kept)


def is_valid(entry: ContextEntry) -> bool:
    """Whether an answer has parts, none of them hollow. Reasoning may be without text: its signature counts."""
    return bool(entry.parts) and not any(
        (isinstance(part, Text) and part.text == "") or (isinstance(part, OtherPart) and not part.data)
        for part in entry.parts
    )


# Views for somebody who looks for a fault: what a session starts with, all of it, what is fit to send, what is sent.


def initial_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    return _environment(options)


def full_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    """Everything that was said, as it was said: no summary in place of anything, nothing left out."""
    said = (
        to_context(node.entry, seq=node.seq)
        for node in snapshot.nodes
        if isinstance(node.entry, ModelInput | ModelOutput | ToolResults)
    )
    return (*_environment(options), *said)


def curated_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    masked = masked_results(snapshot.nodes)
    rendered = _rendered(_pieces(snapshot), masked, session_id=snapshot.session_id, remarks=[])
    return curate((*_environment(options), *rendered))


def validated_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    """What would be sent if there were no limits."""
    return render_context(snapshot, replace(options, max_turns=None, max_messages=None, max_tokens=None)).entries


View = Callable[[Snapshot, ContextOptions], tuple[ContextEntry, ...]]
VIEWS: dict[str, View] = {
    "initial": initial_view,
    "full": full_view,
    "curated": curated_view,
    "validated": validated_view,
}


def is_task_finished(nodes: Iterable[Node], *, tool: str = FINISH_TOOL) -> bool:
    """Whether the last answer asked to finish the task and nothing but its results came after it."""
    answered: set[str] = set()
    for node in reversed(tuple(nodes)):
        entry = node.entry
        if isinstance(entry, ToolResults):
            answered |= {result.call_id for result in entry.results}
        elif isinstance(entry, ModelOutput):
            calls = entry.tool_requests
            asked = any(call.name == tool for call in calls)
            return asked and entry.status == "complete" and answered <= {call.call_id for call in calls}
        elif isinstance(entry, ModelInput | Gap):
            return False
    return False


# As JSON.


def entry_view(entry: ContextEntry) -> dict[str, Any]:
    """A message in the JSON of our entries."""
    written: dict[str, Any] = {"role": entry.role.value, "origin": list(entry.origin)}
    if entry.parts:
        written["parts"] = entry_to_json(ModelInput(at=_NO_TIME, parts=entry.parts))["parts"]
    if entry.results:
        written["results"] = entry_to_json(ToolResults(at=_NO_TIME, results=entry.results))["results"]
    if entry.live_screen is not None:
        written["live_screen"] = entry.live_screen
    return written


_NO_TIME = datetime.fromtimestamp(0, UTC)


def context_to_json(context: Context) -> dict[str, Any]:
    return {
        "renderer": RENDERER_VERSION,
        "system": context.system,
        "tools": entry_to_json(ToolsOffered(at=_NO_TIME, tools=context.tools)).get("tools", []),
        "entries": [entry_view(entry) for entry in context.entries],
        "report": [{"code": r.code.value, "seq": r.seq, "text": r.text} for r in context.report.remarks],
        "tokens": context.tokens,
    }


def context_to_bytes(context: Context) -> bytes:
    """One way to write it, so that two contexts are the same if these are."""
    return json.dumps(context_to_json(context), sort_keys=True, separators=(",", ":")).encode("ascii")
