"""Values of context rendering: messages to a model, snapshots, options, rendered contexts and their JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self

from history.context.remarks import RepairReport
from history.entries import (
    JsonDict,
    JsonObject,
    ModelInput,
    Node,
    Part,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    entry_to_json,
    text_of,
)

RENDERER_VERSION = "2"

# The content of a new notebook.
NO_NOTEBOOK = "（尚无内容）"


class Role(StrEnum):
    SYSTEM = "system"
    MODEL_INPUT = "model_input"
    MODEL_OUTPUT = "model_output"
    TOOL_RESULT = "tool_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """One message to a model, made for one call and never stored. ``origin`` names the entries that it comes from."""

    role: Role
    parts: tuple[Part, ...] = ()
    results: tuple[ToolResult, ...] = ()
    live_screen: str | None = None
    origin: tuple[int, ...] = ()

    @property
    def content(self) -> str:
        return text_of(self.parts) or "\n\n".join(result.text or result.error for result in self.results)

    @property
    def tool_requests(self) -> tuple[ToolRequest, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolRequest))

    @property
    def seq(self) -> int:
        """The entry that a remark on this message refers to; 0 means none."""
        return self.origin[0] if self.origin else 0

    def with_live_screen(self, text: str | None) -> ContextEntry:
        return dataclasses.replace(self, live_screen=text)


Entries = tuple[ContextEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """An immutable copy of a session along the path to one leaf.

    A loader may leave out entries that a summary replaces (``summarised_ranges``), and all entries older than
    ``loaded_from`` (0: none) except summaries and retractions. A body dropped by policy becomes ``dropped_entry(…)``.
    ``instruction_by`` is the agent that set the instruction, if one did.
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
    """Options of rendering. All three limits apply; None means no limit.

    ``environment`` is the text of a first message that is made for each call and never stored. ``notebook`` replaces
    the notebook of the snapshot. ``calibration`` is the model's factor for token estimates.
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

    def to_json(self) -> JsonDict:
        return {"renderer": RENDERER_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, data: JsonObject) -> Self:
        names = {field.name for field in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in data.items() if name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The input of one model call, with a report of repairs. ``tokens`` estimates all of it."""

    entries: Entries
    system: str = ""
    tools: tuple[ToolDefinition, ...] = ()
    report: RepairReport = field(default_factory=RepairReport)
    tokens: int = 0


_NO_TIME = datetime.fromtimestamp(0, UTC)


def entry_view(entry: ContextEntry) -> JsonDict:
    written: JsonDict = {"role": entry.role.value, "origin": list(entry.origin)}
    if entry.parts:
        written["parts"] = entry_to_json(ModelInput(at=_NO_TIME, parts=entry.parts))["parts"]
    if entry.results:
        written["results"] = entry_to_json(ToolResults(at=_NO_TIME, results=entry.results))["results"]
    if entry.live_screen is not None:
        written["live_screen"] = entry.live_screen
    return written
