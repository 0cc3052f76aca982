"""Zip archive written as a stream, without seeking back.

What grows with the number of files is the table of contents, which a zip has at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

# Before and after which a zip knows no time.
EARLIEST, LATEST = datetime(1980, 1, 1, tzinfo=UTC), datetime(2107, 12, 31, tzinfo=UTC)


class _Outbox:
    """A file that can only be written to; what was written is taken away from time to time."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, piece: bytes) -> int:
        self.pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        pieces, self.pieces = self.pieces, []
        return b"".join(pieces)


class ZipStream:
    def __init__(self) -> None:
        self.outbox = _Outbox()
        self.zip = ZipFile(self.outbox, "w", ZIP_DEFLATED)  # type: ignore[call-overload]

    def add(self, name: str, pieces: Iterable[bytes], *, at: datetime) -> Iterator[bytes]:
        moment = min(max(at.astimezone(UTC), EARLIEST), LATEST)
        info = ZipInfo(name, moment.timetuple()[:6])
        info.compress_type = ZIP_DEFLATED
        info.external_attr = 0o644 << 16
        with self.zip.open(info, "w", force_zip64=True) as file:
            for piece in pieces:
                file.write(piece)
                if ready := self.outbox.taken():
                    yield ready
        yield self.outbox.taken()

    def close(self) -> bytes:
        self.zip.close()
        return self.outbox.taken()
