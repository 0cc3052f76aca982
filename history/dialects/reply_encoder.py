"""Base class of stream encoders: model, usage and end until they are due."""

from __future__ import annotations

from history.answers.assembly import merged_usage
from history.answers.events import Beside, Ended, Event, Failed, Piece, Skipped, Started, UsageReported
from history.entries import Usage


class Replying:
    """One stream in the making. A dialect says how pieces, a failure and the end look in it."""

    def __init__(self, *, model: str, reply_id: str) -> None:
        self.model, self.reply_id = model, reply_id
        self.usage: Usage | None = None
        self.ended: Ended | None = None
        self.has_failed = False

    def feed(self, event: Event) -> bytes:
        match event:
            case Started():
                self.model = event.model or self.model
            case UsageReported():
                self.usage = merged_usage(self.usage, event.usage)
            case Ended():
                self.ended = event
            case Failed():
                self.has_failed = True
                return self.fail(event)
            case Skipped() | Beside():  # there is no place for it
                pass
            case _:
                return self.write(event)
        return b""

    def end(self) -> bytes:
        """After a failure there is nothing more to say."""
        return b"" if self.has_failed else self.close(self.ended)

    def write(self, piece: Piece) -> bytes:
        raise NotImplementedError

    def fail(self, failed: Failed) -> bytes:
        raise NotImplementedError

    def close(self, ended: Ended | None) -> bytes:
        """None: the stream breaks off here."""
        raise NotImplementedError
