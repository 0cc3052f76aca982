"""Pieces of an answer, folded into one entry. Half an answer is still an answer.

An `Assembler` can be asked at any time for what there is so far, and can be made again from that, so an answer survives
whoever was putting it together. Cut-off tool arguments are kept to the letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from history.entries import (
    ModelOutput,
    OtherPart,
    Part,
    Reasoning,
    Status,
    Text,
    ToolRequest,
    Usage,
)
from history.events import (
    Ended,
    Event,
    Failed,
    OtherPiece,
    ReasoningPiece,
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


class Assembler:
    """Feed it events; `output()` is the answer so far."""

    def __init__(self, *, provider: str = "", model: str = "", agent: str = "") -> None:
        self.provider, self.model, self.agent = provider, model, agent
        self.request_id = ""
        self.usage: Usage | None = None
        self.ended: Ended | None = None
        self.failed: Failed | None = None
        self._pieces: dict[str, _Piece] = {}

    @classmethod
    def resume(cls, output: ModelOutput) -> Assembler:
        """Go on where a partial answer stopped."""
        resumed = cls(provider=output.provider, model=output.model, agent=output.agent)
        resumed.request_id, resumed.usage = output.request_id, output.usage
        resumed._pieces = {f"resumed-{place}": _Piece.of(part) for place, part in enumerate(output.parts)}
        return resumed

    def feed(self, event: Event) -> None:
        match event:
            case Started():
                self.model, self.request_id = event.model or self.model, event.request_id or self.request_id
            case UsageReported():
                self.usage = _merged(self.usage, event.usage)
            case Ended():
                self.ended = event
            case Failed():
                self.failed = event
            case TextPiece() | ReasoningPiece() | ToolCallPiece() | OtherPiece():
                self._piece(event).add(event)

    def feed_all(self, events: Iterable[Event]) -> Assembler:
        for event in events:
            self.feed(event)
        return self

    def output(self, *, status: Status | None = None, **fields: Any) -> ModelOutput:
        """The answer so far. Without a `status`, it is complete if the vendor said so, failed if it said that."""
        parts = tuple(part for piece in self._pieces.values() if (part := piece.part(self.provider)) is not None)
        return ModelOutput(
            parts=parts,
            provider=self.provider,
            model=self.model,
            agent=self.agent,
            status=status or self._status(),
            end_reason=fields.pop("end_reason", self.ended.reason if self.ended else ""),
            error=self.failed.message if self.failed else "",
            usage=self.usage,
            request_id=self.request_id,
            **fields,
        )

    def _status(self) -> Status:
        if self.failed:
            return "failed"
        return "complete" if self.ended else "interrupted"

    def _piece(self, event: TextPiece | ReasoningPiece | ToolCallPiece | OtherPiece) -> _Piece:
        if event.part not in self._pieces:
            self._pieces[event.part] = _Piece(_KINDS[type(event)])
        return self._pieces[event.part]


class _Piece:
    """One part in the making. Texts are kept in pieces, so that a long answer does not cost its length squared."""

    def __init__(self, build: Callable[..., Part | None]) -> None:
        self.build = build
        self.texts: dict[str, list[str]] = {}
        self.whole: Part | None = None

    @classmethod
    def of(cls, part: Part) -> _Piece:
        piece = cls(lambda **_: part)
        piece.whole = part
        return piece

    def add(self, event: TextPiece | ReasoningPiece | ToolCallPiece | OtherPiece) -> None:
        if isinstance(event, OtherPiece):
            self.whole = OtherPart(data=event.data)
            return
        for name in event.__slots__:
            if name != "part" and (value := getattr(event, name)):
                self.texts.setdefault(name, []).append(value)

    def part(self, provider: str) -> Part | None:
        if self.whole is not None:
            return self.whole
        return self.build(provider=provider, **{name: "".join(texts) for name, texts in self.texts.items()})


def _text(*, provider: str, text: str = "") -> Part | None:
    return Text(text=text) if text else None


def _reasoning(*, provider: str, **texts: str) -> Part | None:
    return Reasoning(provider=provider, **texts) if texts else None


def _tool_request(*, provider: str, call_id: str = "", name: str = "", arguments: str = "") -> Part | None:
    """A call without a name and arguments is nothing that anybody could run: some vendors send such empty shells."""
    return ToolRequest(call_id=call_id, name=name, arguments=arguments or "{}") if name or arguments else None


def _other(**_: Any) -> Part | None:
    return None


_KINDS: dict[type, Callable[..., Part | None]] = {
    TextPiece: _text,
    ReasoningPiece: _reasoning,
    ToolCallPiece: _tool_request,
    OtherPiece: _other,
}


def _merged(before: Usage | None, after: Usage) -> Usage:
    """Vendors count the input at the start and the output at the end: a later zero does not erase an earlier count."""
    if before is None:
        return after
    counts = {name: getattr(after, name) or getattr(before, name) for name in _COUNTS}
    return replace(after, raw={**before.raw, **after.raw}, **counts)
