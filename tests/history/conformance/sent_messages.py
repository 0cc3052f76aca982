"""Messages that a path sends to a model, by the rules of docs/internals/context.md: simple and slow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from history.entries import Entry, Gap, ModelInput, ModelOutput, Node, Retracted, Summary, ToolResults
from tests.history.conformance.store import SentMessage

Piece = tuple[int, Entry]


def sent_messages_of(path: Sequence[Node], *, among: Collection[int] | None = None) -> list[SentMessage]:
    """`among`: the numbers that count; a summary that stands for none of them is not told."""
    entries = {node.seq: node.entry for node in path}
    in_force = summaries_in(entries)
    masked = {(mask.seq, mask.index) for summary in in_force.values() for mask in summary.masks}
    numbers = sorted(range(1, max(entries, default=0) + 1) if among is None else among)
    told: list[SentMessage] = []
    for kind, group in groupby(_pieces(entries, in_force, numbers), key=lambda piece: isinstance(piece[1], Gap)):
        told += [_missing(list(group))] if kind else [_as_told(piece, masked) for piece in _fit_to_send(group)]
    return told


def summaries_in(entries: Mapping[int, Entry]) -> dict[int, Summary]:
    """The summaries of the path without retracted ones."""
    taken_back = {entry.seq for entry in entries.values() if isinstance(entry, Retracted)}
    return {seq: entry for seq, entry in entries.items() if isinstance(entry, Summary) and seq not in taken_back}


def standing_for(number: int, in_force: Mapping[int, Summary]) -> int | None:
    """The newest summary that stands for this number; none stands for what came after it."""
    found = [seq for seq, summary in in_force.items() if 0 < summary.first <= number <= summary.last and number < seq]
    return max(found, default=None)


def _pieces(entries: Mapping[int, Entry], in_force: Mapping[int, Summary], numbers: Iterable[int]) -> list[Piece]:
    pieces: dict[int, Entry] = {}  # in the order told
    for number in numbers:
        summary = standing_for(number, in_force)
        if summary is not None:
            pieces.setdefault(summary, entries[summary])
        elif isinstance(entries.get(number), ModelInput | ModelOutput | ToolResults | Gap):
            pieces[number] = entries[number]
    return list(pieces.items())


def _fit_to_send(pieces: Iterable[Piece]) -> list[Piece]:
    """Without answers that failed before they said anything; of answers in a row all, or none if one is empty."""
    kept: list[Piece] = []
    begun = [piece for piece in pieces if not _is_nothing(piece[1])]
    for are_answers, group in groupby(begun, key=lambda piece: isinstance(piece[1], ModelOutput)):
        run = list(group)
        if not are_answers or all(isinstance(entry, ModelOutput) and entry.parts for _, entry in run):
            kept += run
    return kept


def _is_nothing(entry: Entry) -> bool:
    return isinstance(entry, ModelOutput) and not entry.parts and entry.status != "complete"


def _as_told(piece: Piece, masked: set[tuple[int, int]]) -> SentMessage:
    number, entry = piece
    if isinstance(entry, ToolResults):
        texts = [None if (number, place) in masked else one.text for place, one in enumerate(entry.results)]
        return SentMessage((number,), tuple(texts))
    return SentMessage((number,), (entry.text,))


def _missing(gaps: Sequence[Piece]) -> SentMessage:
    """Gaps in a row are one message."""
    return SentMessage(tuple(number for number, _ in gaps), tuple(dict.fromkeys(gap.text for _, gap in gaps)))
