"""Values of context rendering: messages to a model, snapshots, options, rendered contexts, remarks, and their JSON.

Remarks name repairs, limits and omissions, each with a stable code. docs/internals/context.md lists them.
"""

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Self

from history.entries import (
    JsonDict,
    JsonObject,
    Node,
    Part,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    empty_object,
    text_of,
    values_to_json,
)
from history.text.lazy import LazyText, SentenceCode, gettext_noop as _


class RemarkCode(SentenceCode):
    EMPTY_TEXT_DROPPED = auto(), _("An empty text was left out.")
    EMPTY_MESSAGE_LEFT_OUT = auto(), _("An empty message was left out.")
    MISPLACED_CALL_REMOVED = auto(), _("The call of %(name)s was left out. Only models call tools.")
    RESULT_SUPPLIED = auto(), _("The call of %(name)s has no result. One with status %(status)s was added.")
    ORPHAN_RESULT_REMOVED = auto(), _("A result of %(name)s was left out. It belongs to no earlier call.")
    DUPLICATE_RESULT_REMOVED = auto(), _("A second result for the same call of %(name)s was left out.")
    RESULTS_MOVED = auto(), _("Results were moved directly after their calls.")
    RESULTS_MERGED = auto(), _("The results of one answer were merged into one message.")
    RESULTS_REORDERED = auto(), _("Results were sorted by their calls.")
    RESULT_NAME_CORRECTED = auto(), _("A result named %(given)s belongs to a call of %(name)s and was renamed.")
    CALL_ID_SUPPLIED = auto(), _("The call of %(name)s had no id. It is now %(call_id)s.")
    CALL_ID_MADE_UNIQUE = auto(), _("The call id %(given)s was used twice. One is now %(call_id)s.")
    OPENING_SUPPLIED = auto(), _("The conversation began with an answer. An opening message was added.")
    # Not repairs: what rendering left out.
    FAILED_ANSWER_LEFT_OUT = auto(), _("A failed answer without text was left out.")
    INVALID_ANSWERS_LEFT_OUT = auto(), _("%(count)s consecutive answers were left out because one of them is empty.")
    LIVE_SCREEN_LEFT_OUT = auto(), _("The live panels were left out. There is no message to attach them to.")
    LIMIT_TURNS = auto(), _("Only the newest %(limit)s turns are used.")
    LIMIT_MESSAGES = auto(), _("Older turns were left out. They have more than %(limit)s messages.")
    LIMIT_TOKENS = auto(), _("Older turns were left out. They have more than %(limit)s tokens.")
    TURN_CUT = auto(), _("The newest turn has more than %(limit)s messages. Its middle was left out.")
    OVER_MESSAGES = auto(), _("The required part has more than %(limit)s messages. It was kept.")
    OVER_TOKENS = auto(), _("The newest turn alone has more than %(limit)s tokens. It was kept whole.")


@dataclass(frozen=True, slots=True)
class Remark:
    """A code with the values of its sentence; ``seq`` is the entry concerned, 0 means none in particular."""

    code: SentenceCode
    seq: int = 0
    values: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> LazyText:
        return LazyText(self.code.sentence, **self.values)


@dataclass(frozen=True, slots=True)
class RepairReport:
    remarks: tuple[Remark, ...] = ()

    @property
    def codes(self) -> tuple[SentenceCode, ...]:
        return tuple(remark.code for remark in self.remarks)


RENDERER_VERSION = "2"

NO_NOTEBOOK = "（尚无内容）"  # the content of a new notebook


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

    def with_live_screen(self, text: str | None) -> "ContextEntry":
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
    """All three limits apply; None means no limit. ``notebook`` replaces that of the snapshot."""

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


def entry_view(entry: ContextEntry) -> JsonDict:
    written: JsonDict = {"role": entry.role.value, "origin": list(entry.origin)}
    if entry.parts:
        written["parts"] = values_to_json(entry.parts)
    if entry.results:
        written["results"] = values_to_json(entry.results)
    if entry.live_screen is not None:
        written["live_screen"] = entry.live_screen
    return written
