"""Messages in a vendor's wire format inside a file, decoded by its dialect.

A dialect reads whole requests, and a file gives a few items at a time, so the names of tools that were called further
up are remembered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from history.dialects import DIALECTS, DialectError
from history.dialects.types import Said
from history.entries import ModelInput, ModelOutput, Text, ToolResult, ToolResults
from history.formats.base import Notes, gettext_noop

CHANNEL = "import"
_LISTS = {
    "anthropic-messages": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini-generate": "contents",
}


class Wire:
    """One conversation in a vendor's language, read piece by piece."""

    def __init__(self, dialect: str, notes: Notes) -> None:
        self.dialect, self.notes = dialect, notes
        self.blobs: dict[str, bytes] = {}
        self.names: dict[str, str] = {}

    def read(self, said: Sequence[Any], *, at: datetime) -> list[Said]:
        """The entries that these messages or items are."""
        try:
            request = DIALECTS[self.dialect].decode_request({_LISTS[self.dialect]: list(said)}, at=at)
        except DialectError as error:
            self.notes("lost", gettext_noop("A message could not be read."), where=str(error))
            return []
        self.blobs.update(request.blobs)
        entries = list(request.entries)
        if request.system:  # an instruction at the beginning of a piece is still one in the middle of the whole
            entries.insert(0, instruction(request.system, at=at))
        return [self._named(entry) for entry in entries]

    def _named(self, entry: Said) -> Said:
        if isinstance(entry, ModelOutput):
            self.names.update({call.call_id: call.name for call in entry.tool_requests})
        elif isinstance(entry, ToolResults):
            return replace(entry, results=tuple(self._with_name(result) for result in entry.results))
        else:
            return entry if entry.channel == "system" else replace(entry, channel=CHANNEL)
        return entry

    def _with_name(self, result: ToolResult) -> ToolResult:
        return result if result.name else replace(result, name=self.names.get(result.call_id, "unknown"))


def instruction(text: str, *, at: datetime) -> ModelInput:
    return ModelInput(at=at, channel="system", parts=(Text(text=text),), is_internal=True)
