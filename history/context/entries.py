"""What a model is told, in nobody's format: the values between the history and a vendor's wire.

A :class:`ContextEntry` is made from an entry when a call is prepared and thrown away afterwards. It is not an
:class:`~history.entries.Entry`, so neither it nor a copy that carries a live screen can be appended to a history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from history.entries import Part, ToolRequest, ToolResult, text_of


class Role(StrEnum):
    """Who speaks, in words that belong to no vendor."""

    SYSTEM = "system"
    MODEL_INPUT = "model_input"
    MODEL_OUTPUT = "model_output"
    TOOL_RESULT = "tool_result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """One message to a model. ``origin`` names the entries that it comes from; empty: made for this call only."""

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
        """The entry that a remark about this message points to; 0: none."""
        return self.origin[0] if self.origin else 0

    def with_live_screen(self, text: str | None) -> ContextEntry:
        return replace(self, live_screen=text)
