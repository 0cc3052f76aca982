"""Base classes of the readers and writers of replies: parts of an answer, and blocks of a stream."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from history.answers import events
from history.answers.assembly import NO_ARGUMENTS
from history.dialects.json_access import parse_json, string
from history.dialects.sse import Finality, sse
from history.dialects.tools import substitutes_by_name, text_tool_names
from history.dialects.types import Tools
from history.entries import JsonDict, JsonObject, ModelOutput, Reasoning, Text, ToolRequest, Usage


class ReplyReader:
    """Reads the JSON of one reply, or of the events of a stream."""

    final_marks: ClassVar[tuple[bytes, ...]]  # every final event of a stream contains one of these

    def __init__(self, provider: str = "") -> None:
        self.provider = provider
        self._has_started = False
        self._part_count, self._part_kind = 0, ""

    @staticmethod
    def decode_error(status: int, body: bytes | JsonObject) -> events.AnswerFailed:
        """Decode an HTTP error, or one within a stream, which has the status 0."""
        raise NotImplementedError

    @staticmethod
    def finality(name: str, event: JsonObject) -> Finality | None:
        """Whether this event of a stream ends the answer; None if it does not show that."""
        raise NotImplementedError

    def read(self, name: str, event: JsonObject) -> Iterable[events.Event]:
        raise NotImplementedError

    def read_reply(self, reply: JsonObject) -> Iterable[events.Event]:
        raise NotImplementedError

    def done(self) -> Iterable[events.Event]:
        """Called when the stream says ``[DONE]``."""
        return ()

    def start(
        self, reply: JsonObject, *, model: str = "model", request_id: str = "id"
    ) -> Iterator[events.AnswerStarted]:
        if not self._has_started:
            self._has_started = True
            names = {"model": string(reply.get(model)), "request_id": string(reply.get(request_id))}
            yield events.AnswerStarted(**names, provider=self.provider)

    def same_part(self, kind: str) -> str:
        """The name of the current part if it is of this kind, else a new name: its consecutive pieces are one part."""
        if kind != self._part_kind:
            self._part_count, self._part_kind = self._part_count + 1, kind
        return f"{kind}-{self._part_count}"

    def new_part(self, kind: str) -> str:
        self._part_kind = ""
        return self.same_part(kind)


@dataclass(slots=True)
class OpenBlock:
    """A part that is being written, with its pieces so far. `waiting` are those that are not written yet."""

    index: int
    first: events.Piece
    pieces: list[events.Piece] = field(default_factory=list)
    waiting: list[events.Piece] = field(default_factory=list)
    is_begun: bool = False

    @property
    def part(self) -> Text | Reasoning | ToolRequest:
        match self.first:
            case events.ToolCallPiece(call_id=call_id, name=name):
                return ToolRequest(call_id=call_id, name=name, arguments=self._joined("arguments") or NO_ARGUMENTS)
            case events.ReasoningPiece(redacted=redacted):
                return Reasoning(text=self._joined("text"), signature=self._joined("signature"), redacted=redacted)
        return Text(text=self._joined("text"))

    def is_finished(self) -> bool:
        """Whether a new block may end this one: a text ends at any time, a call when its arguments are valid JSON."""
        if isinstance(self.first, events.ToolCallPiece):
            try:
                parse_json(self._joined("arguments"))
            except ValueError:
                return False
        return True

    def _joined(self, name: str) -> str:
        return "".join(getattr(piece, name, "") for piece in self.pieces)


class ReplyWriter:
    """Writes one reply, or the parts of a stream. `tools` are those of the request."""

    begins_with_error: ClassVar[bool] = False  # whether a stream has a start even if an error is its first event

    def __init__(
        self, *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Tools = ()
    ) -> None:
        self.model, self.reply_id, self.created, self.with_usage = model, reply_id, created, with_usage
        self.usage: Usage | None = None
        self.substitutes = substitutes_by_name(tools)
        self.text_tools = text_tool_names(tools)  # tools that the client knows as ones with plain text

    @staticmethod
    def encode_error(error: events.AnswerFailed) -> tuple[int, JsonDict]:
        raise NotImplementedError

    def write_reply(self, output: ModelOutput, reason: events.EndReason) -> JsonDict:
        raise NotImplementedError

    def write_start(self) -> bytes:
        return b""

    def write_without_block(self, piece: events.Piece) -> bytes | None:
        """Write a piece that needs no block; None for any other. Media and parts of other vendors are left out."""
        return b"" if isinstance(piece, events.MediaPiece | events.OtherPiece) else None

    def open_block(self, block: OpenBlock) -> bytes:
        return b""

    def write_piece(self, block: OpenBlock, piece: events.Piece) -> bytes:
        return b""

    def close_block(self, block: OpenBlock) -> bytes:
        return b""

    def write_rest(self) -> bytes:
        """Write what waits for a part that does not come."""
        return b""

    def write_error(self, body: JsonDict) -> bytes:
        return sse(body)

    def write_end(self, ended: events.AnswerEnded) -> bytes:
        raise NotImplementedError
