"""Base class of reply encoders: start, blocks one after another, usage, end or failure.

Vendors want blocks one after another, but pieces may come mixed. Only the first open block is written at once; pieces
of later blocks wait. A dialect writes the start, the parts of a block, an error and the end in its format.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from history.answers import events
from history.answers.assembly import NO_ARGUMENTS, merged_usage
from history.dialects.json_access import parse_json
from history.dialects.sse import sse
from history.dialects.tools import substitutes_by_name
from history.dialects.types import Tools
from history.entries import JsonDict, ModelOutput, Reasoning, Text, ToolRequest, Usage

# The texts of a part, which come in pieces.
_TEXTS: dict[type[events.Piece], tuple[str, ...]] = {
    events.TextPiece: ("text",),
    events.ReasoningPiece: ("text", "signature"),
    events.ToolCallPiece: ("arguments",),
}


@dataclass(slots=True)
class OpenBlock:
    """A part that is being written. `first` is its first piece; `texts` are the texts of its pieces so far."""

    index: int
    first: events.Piece
    waiting: list[events.Piece] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    is_begun: bool = False

    @property
    def head(self) -> Text | Reasoning | ToolRequest:
        """The part without its texts."""
        match self.first:
            case events.ToolCallPiece(call_id=call_id, name=name):
                return ToolRequest(call_id=call_id, name=name, arguments=NO_ARGUMENTS)
            case events.ReasoningPiece(redacted=redacted):
                return Reasoning(redacted=redacted)
        return Text(text="")

    @property
    def part(self) -> Text | Reasoning | ToolRequest:
        """The part with its texts so far."""
        texts: Any = {name: "".join(pieces) for name, pieces in self.texts.items()}
        return replace(self.head, **texts)

    def is_finished(self) -> bool:
        """Whether a new block may end this one: a text ends at any time, a call when its arguments are valid JSON."""
        if isinstance(self.first, events.ToolCallPiece):
            try:
                parse_json("".join(self.texts.get("arguments", ())))
            except ValueError:
                return False
        return True

    def add(self, piece: events.Piece) -> None:
        self.waiting.append(piece)
        for name in _TEXTS[type(self.first)]:
            if value := getattr(piece, name, ""):
                self.texts.setdefault(name, []).append(value)


class ReplyEncoder:
    """Encodes the events of one reply as a vendor's stream, or a whole one. `tools` are those of the request."""

    def __init__(
        self, *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Tools = ()
    ) -> None:
        self.model, self.reply_id, self.created, self.with_usage = model, reply_id, created, with_usage
        self.usage: Usage | None = None
        self.ended: events.AnswerEnded | None = None
        self.has_begun = self.has_failed = False
        self.substitutes = substitutes_by_name(tools)
        self._open: list[OpenBlock] = []
        self._is_call: dict[str, bool] = {}
        self._count = 0
        self.prepare()

    def prepare(self) -> None:
        """Set up the state of a dialect."""

    def takes_text(self, tool: str) -> bool:
        """Whether the client knows this tool as one with plain text."""
        substitute = self.substitutes.get(tool)
        return substitute is not None and substitute.takes_text

    def encode(self, output: ModelOutput) -> JsonDict:
        self.usage = output.usage
        reason = output.end_reason or ("tool_use" if output.tool_requests else "stop")
        return self.write_reply(output, events.end_reason(reason))

    def feed(self, event: events.Event) -> bytes:
        match event:
            case events.AnswerStarted():
                self.model = event.model or self.model
            case events.UsageReported():
                self.usage = merged_usage(self.usage, event.usage)
            case events.AnswerEnded():
                self.ended = event
            case events.AnswerFailed():
                self.has_failed = True
                return self.flush() + self.write_error(event)
            case events.UnreadableEvent() | events.FurtherAnswerEvent():  # a stream has no place for them
                pass
            case _:
                return self.write(event)
        return b""

    def end(self) -> bytes:
        """A stream without `Ended` breaks off. A failure has ended it already."""
        if self.has_failed:
            return b""
        return self.begin() + self.flush() + self.write_end(self.ended) if self.ended else self.flush()

    def begin(self) -> bytes:
        """The start of the stream, once."""
        if self.has_begun:
            return b""
        self.has_begun = True
        return self.write_start()

    def write(self, piece: events.Piece) -> bytes:
        """A stream has no place for media and for parts of other vendors."""
        if isinstance(piece, events.MediaPiece | events.OtherPiece):
            return b""
        return self.begin() + self._write_to_block(piece)

    def flush(self) -> bytes:
        """Write what waits, and close all blocks."""
        written = []
        while self._open:
            written += [self._write_waiting(), self.close_block(self._open.pop(0))]
        return b"".join(written)

    @staticmethod
    def encode_error(error: events.AnswerFailed) -> tuple[int, JsonDict]:
        """The HTTP status and the body."""
        raise NotImplementedError

    def write_reply(self, output: ModelOutput, reason: events.EndReason) -> JsonDict:
        raise NotImplementedError

    def write_start(self) -> bytes:
        return b""

    def open_block(self, block: OpenBlock) -> bytes:
        return b""

    def write_piece(self, block: OpenBlock, piece: events.Piece) -> bytes:
        raise NotImplementedError

    def close_block(self, block: OpenBlock) -> bytes:
        raise NotImplementedError

    def write_error(self, failed: events.AnswerFailed) -> bytes:
        return sse(self.encode_error(failed)[1])

    def write_end(self, ended: events.AnswerEnded) -> bytes:
        raise NotImplementedError

    def _write_to_block(self, piece: events.Piece) -> bytes:
        block = None if _is_empty(piece) else self._block_of(piece)
        if block is None:
            return b""
        block.add(piece)
        written = [self._write_waiting()]
        while len(self._open) > 1 and self._open[0].is_finished():
            written += [self.close_block(self._open.pop(0)), self._write_waiting()]
        return b"".join(written)

    def _block_of(self, piece: events.Piece) -> OpenBlock | None:
        """A piece of a closed text opens a new block; a piece of a closed call is useless."""
        for block in self._open:
            if block.first.part == piece.part:
                return block
        is_call = isinstance(piece, events.ToolCallPiece)
        if is_call and self._is_call.get(piece.part):
            return None
        self._is_call[piece.part] = is_call
        self._open.append(OpenBlock(self._count, piece))
        self._count += 1
        return self._open[-1]

    def _write_waiting(self) -> bytes:
        block = self._open[0]
        written = [] if block.is_begun else [self.open_block(block)]
        block.is_begun = True
        pieces, block.waiting = block.waiting, []
        return b"".join([*written, *(self.write_piece(block, piece) for piece in pieces)])


def _is_empty(piece: events.Piece) -> bool:
    """An empty text or thought would open a block and never fill it."""
    if isinstance(piece, events.TextPiece):
        return not piece.text
    return isinstance(piece, events.ReasoningPiece) and not (piece.text or piece.signature or piece.redacted)
