"""From the history to what a model is to be told: deterministic, read-only, cut at turns, repaired with a report.

``render_context(snapshot, options)`` splits the path into turns, puts summaries in place of what they stand for, lets
through what a model may see, repairs each turn by itself and keeps as many of the newest turns as the limits allow.
Because a turn is prepared without a look at any other, the newest part of a path renders like the whole of it, and
``reaches_far_enough`` can tell a loader when to stop reading.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from history.context_entries import ContextEntry as ContextEntry
from history.context_entries import Role as Role
from history.entries import Gap, Node, Retracted, Summary, ToolDefinition

RENDERER_VERSION = "1"

# What the notebook says before anybody has written into it.
NO_NOTEBOOK = "（尚无内容）"


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


def dropped_entry(kind: str, *, at: datetime) -> Gap:
    """What stands in a snapshot for an entry of this kind whose body was dropped by policy."""
    return Gap(at=at, reason="dropped by policy", metadata={"dropped": kind})


def active_summaries(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The summaries among these entries of one path that nobody has retracted, oldest first."""
    nodes = tuple(nodes)
    retracted = {node.entry.seq for node in nodes if isinstance(node.entry, Retracted)}
    return tuple(node for node in nodes if isinstance(node.entry, Summary) and node.seq not in retracted)


def summarised_ranges(nodes: Iterable[Node]) -> tuple[tuple[int, int], ...]:
    """The ranges of seq (first, last) that summaries stand for, merged, oldest first: no need to load what lies there.

    Summaries and retractions inside such a range are needed all the same.
    """
    ranges: list[tuple[int, int]] = []
    for first, last in sorted(_range(node) for node in active_summaries(nodes) if _range(node) != NO_RANGE):
        if ranges and first <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(last, ranges[-1][1]))
        else:
            ranges.append((first, last))
    return tuple(ranges)


NO_RANGE = (0, 0)


def _range(node: Node) -> tuple[int, int]:
    """What a summary stands for: never anything that came after it."""
    assert isinstance(node.entry, Summary)
    first, last = node.entry.first, min(node.entry.last, node.seq - 1)
    return (first, last) if 0 < first <= last else NO_RANGE


def reaches_far_enough(snapshot: Snapshot, options: ContextOptions) -> bool:
    """Whether nothing older than this snapshot holds can matter under these limits.

    A loader reads the path backwards and asks after each page: ``loaded_from`` is the oldest seq it has read (0 once
    it came to the start). Let each page be twice as long as the one before, so that asking stays cheap.
    """
    return snapshot.is_whole
