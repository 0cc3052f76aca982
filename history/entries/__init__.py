"""The facts a history is made of: frozen, typed values that know nothing of Django or of any vendor.

Every entry says *when* it happened and *what kind* of fact it is. Entries are written to JSON and read back without
loss: a field that still has its default is left out, a field of a later schema is kept in ``extra`` and written again,
and a kind that we do not know becomes an :class:`UnknownEntry` that holds exactly what was read.

Which entries may reach a model is a question of type: ``history.context.to_context`` takes only the union
``Renderable``, so a debug log or a notebook edit cannot be sent by mistake.

    values (what all have in common) → parts (what they are made of) → kinds (the entries) → in_json
"""

from history.entries.in_json import SCHEMA_VERSION, TYPE_NAMES, entry_from_json, entry_to_json, kind_of, read_entry
from history.entries.kinds import (
    CONVERSATION,
    KINDS,
    LEAVES,
    MESSAGES,
    STATE,
    DebugLog,
    Entry,
    Gap,
    HeadMoved,
    MaskedResult,
    ModelInput,
    ModelOutput,
    Node,
    NotebookSet,
    PlanSet,
    Retracted,
    Status,
    Summary,
    SystemInstructionSet,
    ToolResults,
    ToolsOffered,
    UnknownEntry,
)
from history.entries.numbering import Numbering
from history.entries.parts import (
    PARTS,
    Media,
    OtherPart,
    Part,
    Reasoning,
    ResultStatus,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    Usage,
    UsageSource,
    text_of,
)
from history.entries.values import EMPTY, MAX_LEVELS, EntryError, Value, frozen, nothing, now, thaw

__all__ = [
    "CONVERSATION",
    "EMPTY",
    "KINDS",
    "LEAVES",
    "MAX_LEVELS",
    "MESSAGES",
    "PARTS",
    "SCHEMA_VERSION",
    "STATE",
    "TYPE_NAMES",
    "DebugLog",
    "Entry",
    "EntryError",
    "Gap",
    "HeadMoved",
    "MaskedResult",
    "Media",
    "ModelInput",
    "ModelOutput",
    "Node",
    "NotebookSet",
    "Numbering",
    "OtherPart",
    "Part",
    "PlanSet",
    "Reasoning",
    "ResultStatus",
    "Retracted",
    "Status",
    "Summary",
    "SystemInstructionSet",
    "Text",
    "ToolDefinition",
    "ToolRequest",
    "ToolResult",
    "ToolResults",
    "ToolsOffered",
    "UnknownEntry",
    "Usage",
    "UsageSource",
    "Value",
    "entry_from_json",
    "entry_to_json",
    "frozen",
    "kind_of",
    "nothing",
    "now",
    "read_entry",
    "text_of",
    "thaw",
]
