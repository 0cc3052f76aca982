"""Files, folders and archives of an import, unpacked safely in bounded space.

Members of archives are read as streams, so their names can do nothing. An archive inside an archive is put into a
nameless temporary file. What unpacks to far more than it takes is refused.
"""

import gzip
import io
import os
import shutil
import tempfile
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar

import zstandard

from history.formats.base import FormatError
from history.formats.encodings import PieceStream
from history.formats.sources import MAX_ATTACHMENT, MEGABYTE, Companion, no_companion
from history.text.lazy import gettext_noop as _

MAX_UNPACKED = 10 * 1024 * MEGABYTE
MAX_RATIO = 200
FREE_OF_RATIO = 256 * MEGABYTE  # so much is unpacked however well it is packed
MAX_MEMBERS = 200_000
MAX_WINDOW = 128 * MEGABYTE  # of zstd
MAX_LEVELS = 2
HEAD = 4_096

ZIP, GZIP, ZSTD = b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
UNPACKS_TO_TOO_MUCH = _("The archive would unpack to far more than its size. Repack it and try again.")
DAMAGED = _("The archive is damaged (%(error)s).")
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, zstandard.ZstdError, gzip.BadGzipFile, NotImplementedError)


File = TypeVar("File")


@dataclass(frozen=True)
class UnpackedFile:
    """One file to look at. `is_named`: the user named this file, so it is refused and not ignored."""

    name: str
    open: Callable[[], BinaryIO]
    size: int
    companion: Companion = field(default=no_companion)
    is_named: bool = False

    def head(self) -> bytes:
        with closing(self.open()) as stream:
            return stream.read(HEAD)


def files_at(paths: list[Path]) -> Iterator[UnpackedFile]:
    """The files at these paths, and all files in folders; links are skipped."""
    for top in paths:
        if not top.is_dir():
            yield _file(top, name=top.name, is_named=True)
            continue
        for place, folders, names in os.walk(top):
            folders.sort()
            files = {name: Path(place, name) for name in sorted(names)}
            companion = _companion(files, lambda path: path.stat().st_size, Path.read_bytes)
            for path in files.values():
                if path.is_file() and not path.is_symlink():
                    yield _file(path, name=path.relative_to(top).as_posix(), companion=companion)


def uploaded(path: Path, *, name: str) -> UnpackedFile:
    return _file(path, name=PurePosixPath(name.replace("\\", "/")).name or "file", is_named=True)


def _file(path: Path, *, name: str, is_named: bool = False, companion: Companion = no_companion) -> UnpackedFile:
    return UnpackedFile(name, lambda: path.open("rb"), path.stat().st_size, companion, is_named)


def _companion(files: Mapping[str, File], size_of: Callable[[File], int], read: Callable[[File], bytes]) -> Companion:
    names = sorted(files)

    def find(prefix: str) -> tuple[str, bytes] | None:
        place = bisect_left(names, prefix)
        name = names[place] if place < len(names) else ""
        if not name.startswith(prefix) or not name or size_of(files[name]) > MAX_ATTACHMENT:
            return None
        return name, read(files[name])

    return find


@dataclass
class _UnpackedLimit:
    """The size that one file may unpack to, over all nested archives together."""

    left: int

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise FormatError(UNPACKS_TO_TOO_MUCH)


def unpacked(piece: UnpackedFile, *, level: int = 0, limit: _UnpackedLimit | None = None) -> Iterator[UnpackedFile]:
    """The piece itself, or what is in it. Raises FormatError for an archive that must not or cannot be opened."""
    limit = limit or _UnpackedLimit(MAX_UNPACKED)
    head = piece.head()
    if not head.startswith((ZIP, GZIP, ZSTD)):
        yield piece
        return
    if level >= MAX_LEVELS:
        raise FormatError(_("The archive is nested more than twice. Unpack it first."))
    if head.startswith(ZIP):
        yield from _members(piece, level=level, limit=limit)
    else:
        inner = _decompressed(piece, is_gzip=head.startswith(GZIP), limit=limit)
        yield from unpacked(inner, level=level + 1, limit=limit)


def may_hold_text(piece: UnpackedFile) -> bool:
    """Whether it is worth a look: JSON has a bracket near its beginning, and no zeros unless it is UTF-16."""
    head = piece.head()
    if b"{" not in head and b"[" not in head:
        return False
    return b"\0" not in head or head[:2] in (b"\xff\xfe", b"\xfe\xff") or 0 in head[:4]


def _members(piece: UnpackedFile, *, level: int, limit: _UnpackedLimit) -> Iterator[UnpackedFile]:
    try:
        with closing(piece.open()) as stream, _seekable(stream) as packed, zipfile.ZipFile(packed) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            total = sum(member.file_size for member in members)  # `zipfile` reads no more of a member than this says
            if len(members) > MAX_MEMBERS or total > min(MAX_UNPACKED, max(FREE_OF_RATIO, MAX_RATIO * piece.size)):
                raise FormatError(UNPACKS_TO_TOO_MUCH)
            if any(member.flag_bits & 1 for member in members):
                raise FormatError(_("The archive is protected by a password. Unpack it first."))
            limit.take(total)
            by_name = {PurePosixPath(member.filename).name: member for member in members}
            companion = _companion(by_name, lambda member: member.file_size, archive.read)
            for member in members:
                open_member: Callable[[], BinaryIO] = partial(archive.open, member)  # type: ignore[assignment]
                inner = UnpackedFile(member.filename, open_member, member.file_size, companion)
                yield from unpacked(inner, level=level + 1, limit=limit)
    except DAMAGE as error:
        raise FormatError(DAMAGED, error=str(error)) from error


@contextmanager
def _seekable(stream: BinaryIO) -> Iterator[BinaryIO]:
    """A zip is read from its end: a stream that cannot jump there cheaply is put into a nameless file first."""
    if isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO):
        yield stream
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, MEGABYTE)
        copy.seek(0)
        yield copy


def _decompressed(piece: UnpackedFile, *, is_gzip: bool, limit: _UnpackedLimit) -> UnpackedFile:
    largest = min(MAX_UNPACKED, max(FREE_OF_RATIO, MAX_RATIO * piece.size))
    furthest = 0  # it is opened more than once, and counts once

    def pieces(raw: BinaryIO) -> Iterator[bytes]:
        nonlocal furthest
        size = 0
        try:
            while content := raw.read(MEGABYTE):
                size += len(content)
                if size > largest:
                    raise FormatError(UNPACKS_TO_TOO_MUCH)
                limit.take(max(0, size - furthest))
                furthest = max(furthest, size)
                yield content
        except DAMAGE as error:
            raise FormatError(DAMAGED, error=str(error)) from error

    def opened() -> BinaryIO:
        packed = piece.open()
        if is_gzip:
            raw: BinaryIO = gzip.GzipFile(fileobj=packed)  # type: ignore[assignment]
        else:
            decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
            raw = decompressor.stream_reader(packed, read_across_frames=True)
        return io.BufferedReader(PieceStream(pieces(raw), packed), MEGABYTE)

    name = PurePosixPath(piece.name)
    inner = str(name.with_suffix("")) if name.suffix in (".gz", ".zst", ".zstd") else piece.name
    return UnpackedFile(name=inner, open=opened, size=piece.size, is_named=piece.is_named)
