"""What rendering takes and what it gives: a snapshot of a session, the wishes of a caller, the context of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from history.context.entries import ContextEntry
from history.context.repair import RepairReport
from history.entries import Node, ToolDefinition

RENDERER_VERSION = "2"

# What the notebook says before anybody has written into it.
NO_NOTEBOOK = "（尚无内容）"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A session as it was at one moment, along the path to one leaf. Later appends do not alter it.

    ``nodes`` are the entries of the path, oldest first. A loader may leave out what cannot matter: entries that a
    summary stands for (``summarised_ranges``), and everything older than ``loaded_from`` except summaries and
    retractions, which must always be there. ``loaded_from`` 0 means that nothing else was left out. An entry whose
    body was dropped by policy is there as ``dropped_entry(…)``. ``instruction_by`` is the agent of ours that set the
    instruction, if one did.
    """

    session_id: str
    version: int
    nodes: tuple[Node, ...]
    loaded_from: int = 0
    system_instruction: str = ""
    instruction_by: str = ""
    notebook: str = NO_NOTEBOOK
    plan: str = ""
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

    ``environment`` is the text of a first message that is made anew for each call and never stored. ``notebook`` is
    told instead of the one that the snapshot's own entries have set. ``calibration`` multiplies token estimates by what
    this model's own counts have shown.
    """

    max_turns: int | None = 5
    max_messages: int | None = None
    max_tokens: int | None = None
    inject_notebook: bool = True
    notebook: str | None = None
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
    report: RepairReport = field(default_factory=RepairReport)
    tokens: int = 0
