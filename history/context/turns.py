"""Turns of a path. Each is prepared independently, so the newest part of a path renders like the whole."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from history.context.messages import Masks, is_instruction, masked_results, messages_of, pieces_of
from history.context.repair import curate, pair, with_opening
from history.context.tokens import estimate_entry
from history.context.values import Entries, Remark, Snapshot
from history.entries import Entry, Gap, ModelInput, ModelOutput, Node, Summary, ToolResults


@dataclass(frozen=True, slots=True)
class ContextTurn:
    """A turn ready to send, and the remarks on it."""

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
    """Split a path into turns. If its start is missing, turns with an uncertain start are left out.

    A turn begins at a summary of other turns or at an input, but not between calls and their results.
    """
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
