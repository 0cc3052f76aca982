"""Summaries in force: what they stand for, where they stand, and the results that they mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from history.context.entries import ContextEntry
from history.context.messages import is_instruction
from history.context.values import Snapshot
from history.entries import (
    Gap,
    ModelInput,
    ModelOutput,
    Node,
    Retracted,
    Summary,
    SystemInstructionSet,
    Text,
    ToolResults,
)

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
    return _merged(span_of(node) for node in active_summaries(nodes))


def edges_of(nodes: Iterable[Node]) -> tuple[int, ...]:
    """The numbers at which it changes which summaries stand for an entry."""
    ranges = [span_of(node) for node in active_summaries(nodes)]
    return tuple(sorted({edge for first, last in ranges if first for edge in (first, last + 1)}))


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


def span_of(node: Node) -> tuple[int, int]:
    """What a summary stands for: never anything that came after it."""
    if not isinstance(node.entry, Summary):
        return NO_RANGE
    first, last = node.entry.first, min(node.entry.last, node.seq - 1)
    return (first, last) if 0 < first <= last else NO_RANGE


def pieces_of(snapshot: Snapshot) -> list[Node]:
    """What is said along the path: entries, or the summary that stands for them, where the first of them stood.

    Of several summaries for one entry the newest counts; one that newer ones cover wholly is not used.
    """
    placed: list[tuple[int, Node]] = []
    covered: tuple[tuple[int, int], ...] = ()
    for node in reversed(active_summaries(snapshot.nodes)):
        place = _first_outside(span_of(node), covered)
        if place is not None and place >= snapshot.loaded_from:
            placed.append((place, node))
        covered = _merged((*covered, span_of(node)))
    said = _outside(_still_said(snapshot.nodes), covered)
    placed.extend((node.seq, node) for node in said if node.seq >= snapshot.loaded_from)
    return [node for _, node in sorted(placed, key=lambda item: item[0])]


def _still_said(nodes: Sequence[Node]) -> Iterator[Node]:
    """What was said, but for instructions of whoever held this conversation before an agent of ours took it over."""
    theirs = (node.seq for node in nodes if isinstance(node.entry, SystemInstructionSet) and node.entry.agent)
    taken_over = max(theirs, default=0)
    for node in nodes:
        is_told = isinstance(node.entry, ModelInput | ModelOutput | ToolResults | Gap)
        if is_told and not (node.seq < taken_over and is_instruction(node.entry)):
            yield node


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


def with_masks(entry: ContextEntry, indexes: Sequence[int], *, session_id: str) -> ContextEntry:
    if not indexes or not entry.results:
        return entry
    results = tuple(
        replace(result, parts=(Text(text=mask_note(session_id, entry.seq, index)),)) if index in indexes else result
        for index, result in enumerate(entry.results)
    )
    return replace(entry, results=results)


def mask_note(session_id: str, seq: int, index: int) -> str:
    return f"[This result was left out to save room. Its full text: session {session_id}, entry {seq}, result {index}.]"
