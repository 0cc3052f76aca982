"""Helpers of all streams: bytes to JSON, parts to blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from history.answers.events import Event, Piece, ReasoningPiece, Skipped, TextPiece, ToolCallPiece
from history.dialects.json_access import parsed
from history.dialects.sse import Documents, ServerSentEvent, SSEDecoder

# How much of an event that could not be read is shown.
SHOWN = 200
_SPACE = b" \t\r\n\xef\xbb\xbf"

Read = Callable[[str, Mapping[str, Any]], Iterable[Event]]
ReadWhole = Callable[[Mapping[str, Any]], Iterable[Event]]


class JsonStreamDecoder:
    """Turns bytes into JSON objects and gives each to `read` with the name of its event.

    A body that is no event stream at all but JSON (an error, a whole reply, an array) goes object by object to
    `read_whole`. `done` is asked when the stream says ``[DONE]``.
    """

    def __init__(self, read: Read, *, read_whole: ReadWhole, done: Callable[[], Iterable[Event]] = tuple) -> None:
        self._read, self._read_whole, self._done = read, read_whole, done
        self._sse = SSEDecoder()
        self._documents = Documents()
        self._is_json: bool | None = None

    def feed(self, chunk: bytes) -> list[Event]:
        if self._is_json is None:
            # Space before the first word means nothing, however much of it comes to keep the connection open.
            if not (begun := chunk.lstrip(_SPACE)):
                return []
            self._is_json = begun[:1] in b"{["
            if (whole := _whole(begun)) is not None:
                return list(self._read_whole(whole))
        if self._is_json:
            return [event for text in self._documents.feed(chunk) for event in self._document(text)]
        return [event for sent in self._sse.feed(chunk) for event in self._event(sent)]

    def close(self) -> list[Event]:
        if self._is_json:
            rest = self._documents.close()
            return [_skipped("the stream was cut off inside this object", _shown(rest))] if rest else []
        return [event for sent in self._sse.close() for event in self._event(sent)]

    def _event(self, sent: ServerSentEvent) -> Iterable[Event]:
        text = sent.data.strip()
        if text.startswith("[DONE]"):
            return self._done()
        if not text:
            return ()
        try:
            found = parsed(text)
        except ValueError as error:
            return (_skipped(f"not JSON: {error}", text),)
        if not isinstance(found, Mapping):
            return (_skipped("not an object", text),)
        return self._read(sent.name, found)

    def _document(self, text: bytes) -> Iterable[Event]:
        try:
            return self._read_whole(parsed(text.decode("utf-8", "replace")))
        except ValueError as error:
            return (_skipped(f"not JSON: {error}", _shown(text)),)


def _whole(text: bytes) -> Any | None:
    """A reply that came in one piece is one object: then nobody need look for where it ends."""
    if text[:1] != b"{" or not text.rstrip(_SPACE).endswith(b"}"):
        return None
    try:
        return parsed(text.decode("utf-8", "replace"))
    except ValueError:
        return None


def _shown(text: bytes) -> str:
    return text[:SHOWN].decode("utf-8", "replace")


def _skipped(problem: str, raw: str) -> Skipped:
    return Skipped(problem=problem, raw=raw[:SHOWN])


class PartNames:
    """Names for the parts of an answer where a vendor gives none: what is of one kind in a row is one part."""

    def __init__(self) -> None:
        self._count = 0
        self._kind = ""

    def same(self, kind: str) -> str:
        """The part that a piece of this kind continues, or a new one."""
        if kind != self._kind:
            self._count, self._kind = self._count + 1, kind
        return f"{kind}-{self._count}"

    def new(self, kind: str) -> str:
        self._kind = ""
        return self.same(kind)


# One after another.


@dataclass(slots=True)
class OpenBlock:
    """A part while it is written. `started` is its first piece; `text` is what the pieces brought so far."""

    index: int
    started: Piece
    waiting: list[Piece] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return "".join(self.texts.get(name, ()))

    @property
    def is_finished(self) -> bool:
        """Nothing tells the end of a text but that something else begins; a call ends when its arguments are whole."""
        if not isinstance(self.started, ToolCallPiece):
            return True
        try:
            parsed(self.text("arguments"))
        except ValueError:
            return False
        return True

    def take(self, piece: Piece) -> None:
        self.waiting.append(piece)
        for name in ("call_id", "name", "text", "signature", "redacted", "arguments"):
            if value := getattr(piece, name, ""):
                self.texts.setdefault(name, []).append(value)


@dataclass(frozen=True, slots=True)
class Opened:
    block: OpenBlock


@dataclass(frozen=True, slots=True)
class Grew:
    block: OpenBlock
    piece: Piece


@dataclass(frozen=True, slots=True)
class Closed:
    block: OpenBlock


Step = Opened | Grew | Closed


def _is_nothing(piece: Piece) -> bool:
    """A text or a thought of no characters would begin a block and never fill it."""
    if isinstance(piece, TextPiece):
        return not piece.text
    return isinstance(piece, ReasoningPiece) and not (piece.text or piece.signature or piece.redacted)


class BlockSequence:
    """Blocks that come one after another, as most vendors want them, from pieces that may come mixed.

    Only the first block that is not closed is written at once; what belongs to later ones waits. A piece for a text
    that is closed already begins a new block; one for a call that is closed is nothing that anybody could use.
    """

    def __init__(self) -> None:
        self._open: list[tuple[str, OpenBlock]] = []
        self._known: dict[str, bool] = {}
        self._count = 0
        self._is_begun = False

    def feed(self, piece: Piece) -> Iterator[Step]:
        block = None if _is_nothing(piece) else self._block_of(piece)
        if block is None:
            return
        block.take(piece)
        yield from self._advance()

    def finish(self) -> Iterator[Step]:
        while self._open:
            yield from self._write(self._open[0][1])
            yield Closed(self._open.pop(0)[1])
            self._is_begun = False

    def _block_of(self, piece: Piece) -> OpenBlock | None:
        for name, block in self._open:
            if name == piece.part:
                return block
        if isinstance(piece, ToolCallPiece) and self._known.get(piece.part):
            return None
        self._known[piece.part] = isinstance(piece, ToolCallPiece)
        self._open.append((piece.part, OpenBlock(self._count, piece)))
        self._count += 1
        return self._open[-1][1]

    def _advance(self) -> Iterator[Step]:
        yield from self._write(self._open[0][1])
        while len(self._open) > 1 and self._open[0][1].is_finished:
            yield Closed(self._open.pop(0)[1])
            self._is_begun = False
            yield from self._write(self._open[0][1])

    def _write(self, block: OpenBlock) -> Iterator[Step]:
        if not self._is_begun:
            self._is_begun = True
            yield Opened(block)
        pieces, block.waiting = block.waiting, []
        for piece in pieces:
            yield Grew(block, piece)
