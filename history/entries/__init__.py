"""Entries of a history: frozen, typed values without Django and without any vendor's format.

An entry has a time and a kind. JSON serialisation is lossless: a field with its default value is left out, a field of
a later schema is kept in ``extra``, and an unknown kind becomes an :class:`UnknownEntry` with the input unchanged.
The type decides what may reach a model: ``history.context.to_context`` takes only the union ``Renderable``.
"""

from history.entries.in_json import SCHEMA_VERSION as SCHEMA_VERSION
from history.entries.in_json import entry_from_json as entry_from_json
from history.entries.in_json import entry_to_json as entry_to_json
from history.entries.in_json import kind_of as kind_of
from history.entries.in_json import read_entry as read_entry
from history.entries.kinds import CONVERSATION as CONVERSATION
from history.entries.kinds import KINDS as KINDS
from history.entries.kinds import LEAVES as LEAVES
from history.entries.kinds import MESSAGES as MESSAGES
from history.entries.kinds import STATE as STATE
from history.entries.kinds import DebugLog as DebugLog
from history.entries.kinds import Entry as Entry
from history.entries.kinds import Gap as Gap
from history.entries.kinds import HeadMoved as HeadMoved
from history.entries.kinds import MaskedResult as MaskedResult
from history.entries.kinds import ModelInput as ModelInput
from history.entries.kinds import ModelOutput as ModelOutput
from history.entries.kinds import Node as Node
from history.entries.kinds import NotebookSet as NotebookSet
from history.entries.kinds import Numbering as Numbering
from history.entries.kinds import PlanSet as PlanSet
from history.entries.kinds import Retracted as Retracted
from history.entries.kinds import Status as Status
from history.entries.kinds import Summary as Summary
from history.entries.kinds import SystemInstructionSet as SystemInstructionSet
from history.entries.kinds import ToolResults as ToolResults
from history.entries.kinds import ToolsOffered as ToolsOffered
from history.entries.kinds import UnknownEntry as UnknownEntry
from history.entries.values import EMPTY as EMPTY
from history.entries.values import PARTS as PARTS
from history.entries.values import EntryError as EntryError
from history.entries.values import JsonDict as JsonDict
from history.entries.values import JsonObject as JsonObject
from history.entries.values import Media as Media
from history.entries.values import OtherPart as OtherPart
from history.entries.values import Part as Part
from history.entries.values import Reasoning as Reasoning
from history.entries.values import ResultStatus as ResultStatus
from history.entries.values import Text as Text
from history.entries.values import ToolDefinition as ToolDefinition
from history.entries.values import ToolRequest as ToolRequest
from history.entries.values import ToolResult as ToolResult
from history.entries.values import Usage as Usage
from history.entries.values import Value as Value
from history.entries.values import empty_object as empty_object
from history.entries.values import now as now
from history.entries.values import text_of as text_of
from history.entries.values import thaw as thaw
