"""Rendering of a snapshot into a context: the newest turns within the limits, and diagnostic views."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from history.context.messages import (
    ConversationEntry,
    Masks,
    is_instruction,
    masked_results,
    messages_of,
    pieces_of,
    to_context,
)
from history.context.repair import curate, pair, validate, with_opening, with_unique_ids
from history.context.tokens import calibrate, estimate_context, estimate_entry, estimate_text
from history.context.values import (
    NO_NOTEBOOK,
    Context,
    ContextEntry,
    ContextOptions,
    Entries,
    Remark,
    RemarkCode,
    RepairReport,
    Role,
    Snapshot,
)
from history.entries import Entry, Gap, ModelInput, ModelOutput, Node, Summary, Text, ToolResults


def render_context(snapshot: Snapshot, options: ContextOptions) -> Context:
    """Render the input of a model call. The same snapshot and options give the same bytes."""
    fixed = fixed_tokens(snapshot, options)
    chosen = _choose_turns(turns_newest_first(snapshot), fixed=fixed, options=options)
    remarks = [remark for turn in chosen.turns for remark in turn.remarks]
    messages = [entry for turn in chosen.turns for entry in turn.entries]
    entries = with_opening([*environment_of(options), *with_unique_ids(messages, remarks=remarks)], remarks=remarks)
    entries = _with_live_screen(entries, options.live_screen, remarks)
    validate(entries)
    return Context(
        entries=entries,
        system=system_text(snapshot, options),
        tools=snapshot.tools,
        report=RepairReport((*remarks, *chosen.remarks)),
        tokens=calibrate(fixed + sum(turn.tokens for turn in chosen.turns), factor=options.calibration),
    )


def reaches_far_enough(snapshot: Snapshot, options: ContextOptions) -> bool:
    """Whether older entries than those of this snapshot cannot matter under these limits.

    A loader calls it after each page, backwards. Each page should be twice as long as the one before: calls stay cheap.
    """
    if snapshot.is_whole:
        return True
    if options.max_turns is options.max_messages is options.max_tokens is None:
        return False
    fixed = fixed_tokens(snapshot, options)
    return _choose_turns(turns_newest_first(snapshot), fixed=fixed, options=options).has_hit_limit


def system_text(snapshot: Snapshot, options: ContextOptions) -> str:
    notebook = (snapshot.notebook if options.notebook is None else options.notebook).strip()
    if not options.inject_notebook or notebook in ("", NO_NOTEBOOK):
        return snapshot.system_instruction
    return f"{snapshot.system_instruction}\n\n[Memory Notebook]\n{notebook}".strip()


def environment_text(parts: Iterable[str]) -> str:
    closing = (
        "Reminder: Do not return an empty response when a tool call is required.",
        "My setup is complete. I will provide my first command in the next turn.",
    )
    return "\n\n".join((*parts, *closing)).strip()


def environment_of(options: ContextOptions) -> Entries:
    if not options.environment:
        return ()
    return (ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=options.environment),)),)


def fixed_tokens(snapshot: Snapshot, options: ContextOptions) -> int:
    """Tokens besides the turns, without the calibration."""
    environment, system = environment_of(options), system_text(snapshot, options)
    return estimate_context(environment, system=system, tools=snapshot.tools) + estimate_text(options.live_screen or "")


def _with_live_screen(entries: Entries, live_screen: str | None, remarks: list[Remark]) -> Entries:
    if not live_screen:
        return entries
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].role in (Role.MODEL_INPUT, Role.TOOL_RESULT):
            return (*entries[:place], entries[place].with_live_screen(live_screen), *entries[place + 1 :])
    remarks.append(Remark(RemarkCode.LIVE_SCREEN_LEFT_OUT))
    return entries


@dataclass(slots=True)
class _ChosenTurns:
    turns: "list[ContextTurn]" = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    has_hit_limit: bool = False

    def note(self, code: RemarkCode, limit: int | None) -> None:
        self.remarks.append(Remark(code, values={"limit": limit}))

    def stop(self, code: RemarkCode, limit: int | None) -> "_ChosenTurns":
        self.has_hit_limit = True
        self.note(code, limit)
        return self


def _choose_turns(turns: "Iterator[ContextTurn]", *, fixed: int, options: ContextOptions) -> _ChosenTurns:
    """The newest turns that fit all limits, oldest first. The newest one always stays."""
    choice = _ChosenTurns()
    tokens, messages = fixed, 0
    for turn in turns:
        if not choice.turns:
            turn = _cut_inside(turn, choice, options)
        tokens += turn.tokens
        messages += len(turn.entries)
        if choice.turns and _is_above(messages, options.max_messages):
            return choice.stop(RemarkCode.LIMIT_MESSAGES, options.max_messages)
        if _is_above(calibrate(tokens, factor=options.calibration), options.max_tokens):
            if choice.turns:
                return choice.stop(RemarkCode.LIMIT_TOKENS, options.max_tokens)
            choice.note(RemarkCode.OVER_TOKENS, options.max_tokens)
        choice.turns.insert(0, turn)
        if len(choice.turns) == options.max_turns:
            return choice.stop(RemarkCode.LIMIT_TURNS, options.max_turns)
    return choice


def _is_above(amount: int, limit: int | None) -> bool:
    return limit is not None and amount > limit


def _cut_inside(turn: "ContextTurn", choice: _ChosenTurns, options: ContextOptions) -> "ContextTurn":
    """Cut the newest turn to ``max_messages``: its first input and as many of its last steps as fit."""
    if not _is_above(len(turn.entries), options.max_messages):
        return turn
    first = turn.entries[:1] if turn.entries[0].role is Role.MODEL_INPUT else ()
    steps = _steps(turn.entries[len(first) :])
    last: list[ContextEntry] = []
    while steps and (not last or len(first) + len(steps[-1]) + len(last) <= (options.max_messages or 0)):
        last[:0] = steps.pop()
    if steps:
        choice.note(RemarkCode.TURN_CUT, options.max_messages)
    if _is_above(len(first) + len(last), options.max_messages):
        choice.note(RemarkCode.OVER_MESSAGES, options.max_messages)
    return turn_of((*first, *last), turn.remarks)


def _steps(entries: Sequence[ContextEntry]) -> list[list[ContextEntry]]:
    """Single messages, or calls together with their results."""
    steps: list[list[ContextEntry]] = []
    for entry in entries:
        if entry.role is Role.TOOL_RESULT and steps:
            steps[-1].append(entry)
        else:
            steps.append([entry])
    return steps


def full_view(snapshot: Snapshot, options: ContextOptions) -> Entries:
    """All messages unchanged, without summaries and limits."""
    nodes = snapshot.nodes
    messages = (to_context(one.entry, seq=one.seq) for one in nodes if isinstance(one.entry, ConversationEntry))
    return (*environment_of(options), *messages)


def curated_view(snapshot: Snapshot, options: ContextOptions) -> Entries:
    masked = masked_results(snapshot.nodes)
    messages = messages_of(pieces_of(snapshot), masked, session_id=snapshot.session_id, remarks=[])
    return curate((*environment_of(options), *messages))


def validated_view(snapshot: Snapshot, options: ContextOptions) -> Entries:
    return render_context(snapshot, replace(options, max_turns=None, max_messages=None, max_tokens=None)).entries


VIEWS: dict[str, Callable[[Snapshot, ContextOptions], Entries]] = {
    "initial": lambda snapshot, options: environment_of(options),
    "full": full_view,
    "curated": curated_view,
    "validated": validated_view,
}


@dataclass(frozen=True, slots=True)
class ContextTurn:
    entries: Entries
    remarks: tuple[Remark, ...]
    tokens: int


def turn_of(entries: Entries, remarks: Sequence[Remark]) -> ContextTurn:
    """Counted with an opening, as if it were the oldest turn of the context."""
    tokens = sum(estimate_entry(entry) for entry in with_opening(entries, remarks=[]))
    return ContextTurn(entries, tuple(remarks), tokens)


def turns_newest_first(snapshot: Snapshot) -> Iterator[ContextTurn]:
    """Turns are prepared lazily: turns beyond the limits cost nothing."""
    masked = masked_results(snapshot.nodes)
    for place, pieces in enumerate(reversed(split_turns(snapshot))):
        yield prepare(pieces, masked, session_id=snapshot.session_id, is_followed=place > 0)


def split_turns(snapshot: Snapshot) -> list[Sequence[Node]]:
    """Split a path into turns. If its start is missing, turns with an uncertain start are left out."""
    pieces = pieces_of(snapshot)
    starts: list[int] = []
    answered_later = _results_ahead(pieces)
    open_calls: set[str] = set()
    knows_calls = snapshot.is_whole
    for place, node in enumerate(pieces):
        if isinstance(node.entry, ModelOutput):
            open_calls, knows_calls = {call.call_id for call in node.entry.tool_requests}, True
        elif isinstance(node.entry, ToolResults):
            open_calls -= {result.call_id for result in node.entry.results}
        elif isinstance(node.entry, Summary):
            open_calls, knows_calls = set(), True
        if snapshot.is_whole and place == 0:
            starts.append(place)
        elif may_begin_turn(node.entry):
            if answered_later[place] and not knows_calls:
                starts.clear()
            elif not open_calls & answered_later[place]:
                starts.append(place)
    return [pieces[start:end] for start, end in pairwise((*starts, len(pieces)))]


def split_steps(pieces: Sequence[Node]) -> list[Sequence[Node]]:
    """Split a turn into steps: calls up to their last result together, other entries one by one."""
    starts = [True] * len(pieces)
    called: dict[str, int] = {}
    for place, node in enumerate(pieces):
        if isinstance(node.entry, ModelOutput):
            called |= {call.call_id or call.name: place for call in node.entry.tool_requests}
        elif isinstance(node.entry, ToolResults):
            first = min((called.get(one.call_id or one.name, place) for one in node.entry.results), default=place)
            starts[first + 1 : place + 1] = [False] * (place - first)
    cuts = [place for place, is_start in enumerate(starts) if is_start or place == 0]
    return [pieces[start:end] for start, end in pairwise((*cuts, len(pieces)))]


def _results_ahead(pieces: Sequence[Node]) -> list[frozenset[str]]:
    """For each place, the calls that get a result after it and before the next answer."""
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


def may_begin_turn(entry: Entry) -> bool:
    if isinstance(entry, ModelInput):
        return not entry.is_internal and not is_instruction(entry)
    if isinstance(entry, Gap):
        return entry.metadata.get("dropped") == ModelInput.kind
    return isinstance(entry, Summary) and not entry.within_turn


def prepare(pieces: Sequence[Node], masked: Masks, *, session_id: str, is_followed: bool) -> ContextTurn:
    remarks: list[Remark] = []
    messages = list(messages_of(pieces, masked, session_id=session_id, remarks=remarks))
    entries = pair(curate(messages, remarks=remarks), remarks=remarks, is_followed=is_followed)
    return turn_of(entries, remarks)
