"""Encoder of streams: start, blocks one after another, usage, end or failure.

Vendors want blocks one after another, but pieces may come mixed. Only the first open block is written at once; pieces
of later blocks wait. The writer of a dialect writes each of these in its format.
"""

from history.answers import events
from history.answers.assembly import merged_usage
from history.dialects.replies import OpenBlock, ReplyWriter


class ReplyEncoder:
    def __init__(self, writer: ReplyWriter) -> None:
        self._writer = writer
        self._ended: events.AnswerEnded | None = None
        self._has_begun = self._has_failed = False
        self._open: list[OpenBlock] = []
        self._is_call: dict[str, bool] = {}
        self._count = 0

    def feed(self, event: events.Event) -> bytes:
        writer = self._writer
        match event:
            case events.AnswerStarted():
                writer.model = event.model or writer.model
            case events.UsageReported():
                writer.usage = merged_usage(writer.usage, event.usage)
            case events.AnswerEnded():
                self._ended = event
            case events.AnswerFailed():
                self._has_failed = True
                begun = self._begin() if writer.begins_with_error else b""
                return begun + self._flush() + writer.write_error(writer.encode_error(event)[1])
            case events.UnreadableEvent() | events.FurtherAnswerEvent():  # a stream has no place for them
                pass
            case _:
                written = writer.write_without_block(event)
                return self._begin() + self._write_to_block(event) if written is None else written
        return b""

    def end(self) -> bytes:
        """A stream without `Ended` breaks off. A failure has ended it already."""
        if self._has_failed:
            return b""
        return self._begin() + self._flush() + self._writer.write_end(self._ended) if self._ended else self._flush()

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return self._writer.write_start()

    def _flush(self) -> bytes:
        written = []
        while self._open:
            written += [self._write_waiting(), self._writer.close_block(self._open.pop(0))]
        return b"".join(written) + self._writer.write_rest()

    def _write_to_block(self, piece: events.Piece) -> bytes:
        block = None if _is_empty(piece) else self._block_of(piece)
        if block is None:
            return b""
        block.pieces.append(piece)
        block.waiting.append(piece)
        written = [self._write_waiting()]
        while len(self._open) > 1 and self._open[0].is_finished():
            written += [self._writer.close_block(self._open.pop(0)), self._write_waiting()]
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
        block, writer = self._open[0], self._writer
        written = [] if block.is_begun else [writer.open_block(block)]
        block.is_begun = True
        pieces, block.waiting = block.waiting, []
        return b"".join([*written, *(writer.write_piece(block, piece) for piece in pieces)])


def _is_empty(piece: events.Piece) -> bool:
    """An empty text or thought would open a block and never fill it."""
    if isinstance(piece, events.TextPiece):
        return not piece.text
    return isinstance(piece, events.ReasoningPiece) and not (piece.text or piece.signature or piece.redacted)
