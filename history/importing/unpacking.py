"""Files, folders and archives of an import, unpacked safely in bounded space.

Archives are opened where they lie, and members are read as streams, so that what a member is called can do nothing. An
archive inside an archive is put into a temporary file without a name. What says that it unpacks to far more than it
takes is refused, and so is an archive that turns out to.
"""

import gzip
import io
import os
import shutil
import tempfile
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

import zstandard

from history.formats.base import FormatError, gettext_noop
from history.formats.sources import MAX_ATTACHMENT, MEGABYTE, no_companion

MAX_UNPACKED = 10 * 1024 * MEGABYTE
MAX_RATIO = 200
FREE_OF_RATIO = 256 * MEGABYTE  # so much is unpacked however well it is packed
MAX_MEMBERS = 200_000
MAX_LEVELS = 2
HEAD = 4_096

ZIP, GZIP, ZSTD = b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
UNPACKS_TO_TOO_MUCH = gettext_noop("The archive would unpack to far more than its size. Repack it and try again.")
DAMAGED = gettext_noop("The archive is damaged (%(error)s).")
# How these fail when they are damaged.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, zstandard.ZstdError, gzip.BadGzipFile, NotImplementedError)


@dataclass(frozen=True)
class UnpackedFile:
    """One file to look at. `is_named`: the user named this file, so it is refused and not ignored."""

    name: str
    open: Callable[[], BinaryIO]
    size: int
    companion: Callable[[str], tuple[str, bytes] | None] = field(default=no_companion)
    is_named: bool = False

    def head(self) -> bytes:
        with closing(self.open()) as stream:
            return stream.read(HEAD)


def files_at(paths: list[Path]) -> Iterator[UnpackedFile]:
    """The files at these paths, and all files in folders; links are skipped."""
    for path in paths:
        if path.is_dir():
            yield from _folder(path)
        else:
            yield _file(path, name=path.name, is_named=True)


def uploaded(path: Path, *, name: str) -> UnpackedFile:
    return _file(path, name=PurePosixPath(name.replace("\\", "/")).name or "file", is_named=True)


def _folder(folder: Path) -> Iterator[UnpackedFile]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        lying = sorted(names)
        for name in lying:
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield _file(path, name=path.relative_to(folder).as_posix(), beside=(Path(place), lying))


def _file(
    path: Path, *, name: str, is_named: bool = False, beside: tuple[Path, list[str]] | None = None
) -> UnpackedFile:
    def companion(prefix: str) -> tuple[str, bytes] | None:
        folder, names = beside or (path.parent, [])
        match = _beginning_with(names, prefix)
        if match is None or (folder / match).stat().st_size > MAX_ATTACHMENT:
            return None
        return match, (folder / match).read_bytes()

    return UnpackedFile(
        name=name, open=lambda: path.open("rb"), size=path.stat().st_size, companion=companion, is_named=is_named
    )


def _beginning_with(names: list[str], prefix: str) -> str | None:
    place = bisect_left(names, prefix)
    return names[place] if place < len(names) and names[place].startswith(prefix) else None


# Archives.


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
    if head.startswith(ZIP):
        yield from _members(piece, level=level, limit=limit)
    elif head.startswith((GZIP, ZSTD)):
        _check_level(level)
        inner = _decompressed(piece, is_gzip=head.startswith(GZIP), limit=limit)
        yield from unpacked(inner, level=level + 1, limit=limit)
    else:
        yield piece


def _check_level(level: int) -> None:
    if level >= MAX_LEVELS:
        raise FormatError(gettext_noop("Archives nested more than twice are not opened."))


def may_hold_text(piece: UnpackedFile) -> bool:
    """Whether it is worth a look: JSON has a bracket near its beginning, and no zeros unless it is UTF-16."""
    head = piece.head()
    if b"{" not in head and b"[" not in head:
        return False
    return b"\0" not in head or head[:2] in (b"\xff\xfe", b"\xfe\xff") or 0 in head[:4]


def _members(piece: UnpackedFile, *, level: int, limit: _UnpackedLimit) -> Iterator[UnpackedFile]:
    _check_level(level)
    try:
        with closing(piece.open()) as stream, _seekable(stream) as packed, zipfile.ZipFile(packed) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            _check(piece, members)
            limit.take(sum(member.file_size for member in members))
            by_name = _by_name(members)
            for member in members:
                yield from unpacked(_member(archive, member, by_name), level=level + 1, limit=limit)
    except DAMAGE as error:
        raise FormatError(DAMAGED, error=str(error)) from error


def _check(piece: UnpackedFile, members: list[zipfile.ZipInfo]) -> None:
    """Check the directory of a zip: `zipfile` reads no more of a member than the directory says."""
    total = sum(member.file_size for member in members)
    if len(members) > MAX_MEMBERS or total > MAX_UNPACKED or total > max(FREE_OF_RATIO, MAX_RATIO * piece.size):
        raise FormatError(UNPACKS_TO_TOO_MUCH)
    if any(member.flag_bits & 1 for member in members):
        raise FormatError(gettext_noop("The archive is protected by a password. Unpack it first."))


def _by_name(members: list[zipfile.ZipInfo]) -> tuple[list[str], dict[str, zipfile.ZipInfo]]:
    """Members by the last part of their names, to be found by how that begins."""
    match = {PurePosixPath(member.filename).name: member for member in members}
    return sorted(match), match


def _member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, by_name: tuple[list[str], dict[str, zipfile.ZipInfo]]
) -> UnpackedFile:
    def companion(prefix: str) -> tuple[str, bytes] | None:
        name = _beginning_with(by_name[0], prefix)
        if name is None or by_name[1][name].file_size > MAX_ATTACHMENT:
            return None
        return name, archive.read(by_name[1][name])

    return UnpackedFile(
        name=member.filename,
        open=lambda: archive.open(member),  # type: ignore[arg-type, return-value]
        size=member.file_size,
        companion=companion,
    )


class _seekable:  # noqa: N801 - reads like a function
    """A zip is read from its end: a stream that cannot jump there cheaply is put into a nameless file first."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.copy: BinaryIO | None = None

    def __enter__(self) -> BinaryIO:
        if isinstance(self.stream, io.BufferedReader) and isinstance(self.stream.raw, io.FileIO):
            return self.stream
        self.copy = tempfile.TemporaryFile()
        shutil.copyfileobj(self.stream, self.copy, MEGABYTE)
        self.copy.seek(0)
        return self.copy

    def __exit__(self, *exc: object) -> None:
        if self.copy is not None:
            self.copy.close()


def _decompressed(piece: UnpackedFile, *, is_gzip: bool, limit: _UnpackedLimit) -> UnpackedFile:
    furthest = 0  # it is opened more than once, and counts once

    def note(place: int) -> None:
        nonlocal furthest
        limit.take(max(0, place - furthest))
        furthest = max(furthest, place)

    def opened() -> BinaryIO:
        packed = piece.open()
        if is_gzip:
            raw: BinaryIO = gzip.GzipFile(fileobj=packed)  # type: ignore[assignment]
        else:
            raw = zstandard.ZstdDecompressor(max_window_size=128 * MEGABYTE).stream_reader(
                packed, read_across_frames=True
            )
        limit = max(FREE_OF_RATIO, MAX_RATIO * piece.size)
        return io.BufferedReader(_Limited(raw, packed, limit=limit, note=note), MEGABYTE)

    name = PurePosixPath(piece.name)
    inner = str(name.with_suffix("")) if name.suffix in (".gz", ".zst", ".zstd") else piece.name
    return UnpackedFile(name=inner, open=opened, size=piece.size, is_named=piece.is_named)


class _Limited(io.RawIOBase):
    """Ends in an error where more comes out than an honest archive holds."""

    def __init__(self, stream: BinaryIO, packed: BinaryIO, *, limit: int, note: Callable[[int], None]) -> None:
        self._stream, self._packed = stream, packed
        self._left, self._read, self._note = min(limit, MAX_UNPACKED), 0, note

    def readable(self) -> bool:
        return True

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        try:
            content = self._stream.read(len(target))
        except DAMAGE as error:
            raise FormatError(DAMAGED, error=str(error)) from error
        self._left -= len(content)
        self._read += len(content)
        if self._left < 0:
            raise FormatError(UNPACKS_TO_TOO_MUCH)
        self._note(self._read)
        target[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._packed.close()
        super().close()
