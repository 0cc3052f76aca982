"""The kinds of facts. Each says when it happened; what else it says is its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, Self

from history.entries.numbering import Numbering
from history.entries.parts import Media, Part, Reasoning, ToolDefinition, ToolRequest, ToolResult, Usage, text_of
from history.entries.values import Value, nothing, now

Status = Literal["complete", "interrupted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Value):
    """One fact. ``metadata`` is free for source, timing and whatever a later reader may want."""

    kind: ClassVar[str] = ""
    role: ClassVar[str] = "system"
    at: datetime = field(default_factory=now)
    agent: str = ""
    is_internal: bool = False
    metadata: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def text(self) -> str:
        """What a person reads, and what search finds."""
        return ""

    def renumbered(self, numbers: Numbering) -> Self:
        """The same fact in a copy of its path where entries have other numbers."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemInstructionSet(Entry):
    kind: ClassVar[str] = "system_instruction_set"
    instruction: str

    @property
    def text(self) -> str:
        return self.instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsOffered(Entry):
    kind: ClassVar[str] = "tools_offered"
    tools: tuple[ToolDefinition, ...] = ()

    @property
    def text(self) -> str:
        return ", ".join(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookSet(Entry):
    kind: ClassVar[str] = "notebook_set"
    content: str
    author: str = ""

    @property
    def text(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet(Entry):
    """The task plan as a whole, a list in Markdown whose items are ticked as they are done. Empty: there is none."""

    kind: ClassVar[str] = "plan_set"
    plan: str

    @property
    def text(self) -> str:
        return self.plan


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput(Entry):
    """What somebody said to the model. ``raw`` is the input as it was typed, where that differs from the parts."""

    kind: ClassVar[str] = "model_input"
    role: ClassVar[str] = "user"
    channel: str = "chat"
    parts: tuple[Part, ...] = ()
    raw: str | None = None

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def raw_input(self) -> str:
        return self.text if self.raw is None else self.raw

    @property
    def attachments(self) -> tuple[Media, ...]:
        return tuple(part for part in self.parts if isinstance(part, Media))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput(Entry):
    """One whole answer, or as much of it as there was: ``status`` and ``end_reason`` say which."""

    kind: ClassVar[str] = "model_output"
    role: ClassVar[str] = "assistant"
    plan: str | None = None
    parts: tuple[Part, ...] = ()
    provider: str = ""
    model: str = ""
    status: Status = "complete"
    end_reason: str = ""
    error: str = ""
    usage: Usage | None = None
    latency: float | None = None
    duration: float | None = None
    request_id: str = ""

    @property
    def text(self) -> str:
        return text_of(self.parts)

    @property
    def tool_requests(self) -> tuple[ToolRequest, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolRequest))

    @property
    def reasoning(self) -> str:
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Reasoning) and part.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResults(Entry):
    """The outcomes of all requests of one answer, one to one and in the order they were asked."""

    kind: ClassVar[str] = "tool_results"
    role: ClassVar[str] = "tool"
    results: tuple[ToolResult, ...] = ()
    overall: str = ""

    @property
    def text(self) -> str:
        return self.overall or "\n\n".join(result.text or result.error for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedResult(Value):
    """One tool result whose text is left out of the context: result ``index`` of entry ``seq``."""

    seq: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Entry):
    """Stands for the entries ``first`` … ``last`` of its path; they stay in the record. ``first`` 0: masks only.

    ``within_turn``: for steps of one turn, which goes on after it. Without a text those entries are just left out.
    """

    kind: ClassVar[str] = "summary"
    first: int = 0
    last: int = 0
    summary: str = ""
    within_turn: bool = False
    masks: tuple[MaskedResult, ...] = ()
    provider: str = ""
    model: str = ""

    @property
    def text(self) -> str:
        return self.summary

    def renumbered(self, numbers: Numbering) -> Self:
        first, last = numbers.span(self.first, self.last)
        masks = tuple(dataclasses.replace(mask, seq=new) for mask in self.masks if (new := numbers.of(mask.seq)))
        return dataclasses.replace(self, first=first, last=last, masks=masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retracted(Entry):
    """Takes the summary ``seq`` back: what it stood for counts again."""

    kind: ClassVar[str] = "retracted"
    seq: int
    reason: str = ""

    def renumbered(self, numbers: Numbering) -> Self:
        return dataclasses.replace(self, seq=numbers.of(self.seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMoved(Entry):
    """The conversation goes on after entry ``to`` (0: from the start). Nothing is removed."""

    kind: ClassVar[str] = "head_moved"
    to: int
    reason: str = "rollback"

    def renumbered(self, numbers: Numbering) -> Self:
        return dataclasses.replace(self, to=numbers.of(self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Entry):
    """Something is missing here, and we say so."""

    kind: ClassVar[str] = "gap"
    reason: str = ""

    @property
    def text(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugLog(Entry):
    kind: ClassVar[str] = "debug_log"
    category: str = ""
    message: str = ""

    @property
    def text(self) -> str:
        return f"{self.category}: {self.message}" if self.category else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownEntry(Entry):
    """An entry of a kind or shape that this version cannot read: kept as it came and shown as such."""

    kind: ClassVar[str] = "unknown"
    data: Mapping[str, Any]
    problem: str = ""

    @property
    def stored_kind(self) -> str:
        return str(self.data.get("kind", ""))[:40]


KINDS: dict[str, type[Entry]] = {
    cls.kind: cls
    for cls in (
        SystemInstructionSet,
        ToolsOffered,
        NotebookSet,
        PlanSet,
        ModelInput,
        ModelOutput,
        ToolResults,
        Summary,
        Retracted,
        HeadMoved,
        Gap,
        DebugLog,
    )
}

# Kinds that people see as messages: what was said and what was answered. Results are shown with the call they answer.
MESSAGES: frozenset[str] = frozenset({ModelInput.kind, ModelOutput.kind})
# Kinds that a conversation consists of, chained by fingerprint.
CONVERSATION: frozenset[str] = frozenset({ModelInput.kind, ModelOutput.kind, ToolResults.kind})
# Kinds that say what holds from here on: an instruction, the tools, a summary in place of what came before.
STATE: frozenset[str] = frozenset(
    {SystemInstructionSet.kind, ToolsOffered.kind, NotebookSet.kind, PlanSet.kind, Summary.kind, Retracted.kind}
)
# Kinds that hang beside the path and never become anybody's parent.
LEAVES: frozenset[str] = frozenset({DebugLog.kind, HeadMoved.kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entry in its place: number ``seq`` of its session, after entry ``parent`` (0: the start)."""

    seq: int
    parent: int
    entry: Entry
