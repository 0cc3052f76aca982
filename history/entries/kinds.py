"""Kinds of entries: messages, answers, tool results, summaries, state changes."""

import dataclasses
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Literal, Self

from history.entries.values import (
    JsonObject,
    Media,
    Part,
    Reasoning,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    Usage,
    Value,
    empty_object,
    now,
    text_of,
)

__all__ = [
    "CONVERSATION", "KINDS", "MESSAGES", "NEVER_PARENTS", "NEWEST_APPLIES", "STATE", "DebugLog", "Entry", "Gap",
    "HeadMoved", "MaskedResult", "ModelInput", "ModelOutput", "Node", "NotebookSet", "Numbering", "PlanSet",
    "Retracted", "Status", "Summary", "SystemInstructionSet", "ToolResults", "ToolsOffered", "UnknownEntry",
]  # fmt: skip

Status = Literal["complete", "interrupted", "failed"]


class Numbering:
    """Old and new entry numbers of a copied path, added in ascending order."""

    def __init__(self) -> None:
        self._old: list[int] = []
        self._new: list[int] = []

    def add(self, old: int, new: int) -> None:
        self._old.append(old)
        self._new.append(new)

    @property
    def last(self) -> int:
        """The old number added last; 0 means none yet."""
        return self._old[-1] if self._old else 0

    def of(self, number: int) -> int:
        """The new number of this entry; 0 means that it is not in the copy."""
        return self.span(number, number)[0]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The first and last new number of this range; (0, 0) means that none was copied."""
        start, end = bisect_left(self._old, first), bisect_right(self._old, last) - 1
        return (self._new[start], self._new[end]) if first > 0 and start <= end else (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Value):
    """One immutable fact of a session. ``metadata`` has any further facts, such as its source."""

    kind: ClassVar[str] = ""
    role: ClassVar[str] = "system"
    text_field: ClassVar[str] = ""  # the field that users read
    at: datetime = field(default_factory=now)
    agent: str = ""
    is_internal: bool = False
    metadata: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> str:
        """The text that users read and search finds."""
        value = getattr(self, self.text_field) if self.text_field else ""
        return value if isinstance(value, str) else text_of(value)

    # Kinds that have some declare a field of this name.

    @property
    def parts(self) -> tuple[Part, ...]:
        return ()

    @property
    def tool_requests(self) -> tuple[ToolRequest, ...]:
        return ()

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return ()

    def renumbered(self, numbers: Numbering) -> Self:
        """This entry with its references changed to the numbers of a copied path."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemInstructionSet(Entry):
    kind: ClassVar[str] = "system_instruction_set"
    text_field: ClassVar[str] = "instruction"
    instruction: str


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
    text_field: ClassVar[str] = "content"
    content: str
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet(Entry):
    """The whole task plan, a Markdown list with checked items. Empty means no plan."""

    kind: ClassVar[str] = "plan_set"
    text_field: ClassVar[str] = "plan"
    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInput(Entry):
    """A message to the model. ``raw`` is the input as it was typed, where that differs from the parts."""

    kind: ClassVar[str] = "model_input"
    role: ClassVar[str] = "user"
    text_field: ClassVar[str] = "parts"
    channel: str = "chat"
    parts: tuple[Part, ...] = ()
    raw: str | None = None

    @property
    def attachments(self) -> tuple[Media, ...]:
        return tuple(part for part in self.parts if isinstance(part, Media))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOutput(Entry):
    """One answer, whole or partial: ``status`` and ``end_reason`` say which."""

    kind: ClassVar[str] = "model_output"
    role: ClassVar[str] = "assistant"
    text_field: ClassVar[str] = "parts"
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
    def tool_requests(self) -> tuple[ToolRequest, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolRequest))

    @property
    def reasoning(self) -> str:
        return "\n\n".join(part.text for part in self.parts if isinstance(part, Reasoning) and part.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResults(Entry):
    """The results of all tool calls of one answer, one for each call and in the same order."""

    kind: ClassVar[str] = "tool_results"
    role: ClassVar[str] = "tool"
    results: tuple[ToolResult, ...] = ()
    overall: str = ""

    @property
    def text(self) -> str:
        return self.overall or "\n\n".join(result.text or result.error for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedResult(Value):
    """A tool result whose text is left out of the context: result ``index`` of entry ``seq``."""

    seq: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Entry):
    """Replaces the entries ``first`` to ``last`` of its path in the context. ``first`` 0 means masks only.

    ``within_turn`` marks steps of one turn that continues. Without a text those entries are only left out.
    """

    kind: ClassVar[str] = "summary"
    text_field: ClassVar[str] = "summary"
    first: int = 0
    last: int = 0
    summary: str = ""
    within_turn: bool = False
    masks: tuple[MaskedResult, ...] = ()
    provider: str = ""
    model: str = ""

    def renumbered(self, numbers: Numbering) -> Self:
        first, last = numbers.span(self.first, self.last)
        masks = tuple(dataclasses.replace(mask, seq=new) for mask in self.masks if (new := numbers.of(mask.seq)))
        return dataclasses.replace(self, first=first, last=last, masks=masks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retracted(Entry):
    """Cancels the summary ``seq``: the entries it replaced count again."""

    kind: ClassVar[str] = "retracted"
    seq: int
    reason: str = ""

    def renumbered(self, numbers: Numbering) -> Self:
        return dataclasses.replace(self, seq=numbers.of(self.seq))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadMoved(Entry):
    """The conversation continues after entry ``to``; 0 means from the start. Nothing is removed."""

    kind: ClassVar[str] = "head_moved"
    to: int
    reason: str = "rollback"

    def renumbered(self, numbers: Numbering) -> Self:
        return dataclasses.replace(self, to=numbers.of(self.to))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap(Entry):
    kind: ClassVar[str] = "gap"
    text_field: ClassVar[str] = "reason"
    reason: str = ""


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
    """An entry that this version cannot read: stored unchanged and shown as such."""

    kind: ClassVar[str] = "unknown"
    data: JsonObject
    problem: str = ""

    @property
    def stored_kind(self) -> str:
        return str(self.data.get("kind", ""))[:40]


_KNOWN = (
    SystemInstructionSet, ToolsOffered, NotebookSet, PlanSet, ModelInput, ModelOutput, ToolResults, Summary, Retracted,
    HeadMoved, Gap, DebugLog,
)  # fmt: skip
KINDS: dict[str, type[Entry]] = {cls.kind: cls for cls in _KNOWN}

# Kinds shown as messages. Tool results are shown with their calls.
MESSAGES = frozenset({ModelInput.kind, ModelOutput.kind})
CONVERSATION = MESSAGES | {ToolResults.kind}  # kinds that make a conversation, chained by fingerprint
# Kinds that set state for the entries after them. Of some only the newest entry applies.
NEWEST_APPLIES = (SystemInstructionSet.kind, ToolsOffered.kind, NotebookSet.kind, PlanSet.kind)
STATE = frozenset({*NEWEST_APPLIES, Summary.kind, Retracted.kind})
NEVER_PARENTS = frozenset({DebugLog.kind, HeadMoved.kind})  # kinds beside the path: they never become a parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """An entry at its position: number ``seq`` of its session, after entry ``parent``; 0 is the start."""

    seq: int
    parent: int
    entry: Entry
