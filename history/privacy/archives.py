"""Archive of personal data: a folder or zip with a manifest, in bounded memory."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from django.core.serializers.json import DjangoJSONEncoder

from history.errors import HistoryError


class CannotWrite(HistoryError):
    """Says which path, and why."""


class PersonalArchive:
    """`open_file` gives a place to write the bytes of a file to."""

    def __init__(self, open_file: Any) -> None:
        self._open = open_file
        self.files: list[dict[str, Any]] = []

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        digest, size = hashlib.sha256(), 0
        with self._open(name) as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        self.files.append({"name": name, "bytes": size, "sha256": digest.hexdigest()})

    def write_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> int:
        """One JSON object a line."""
        count = 0

        def lines() -> Iterator[bytes]:
            nonlocal count
            for row in rows:
                count += 1
                yield json.dumps(row, cls=_Encoder, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

        self.write(name, lines())
        self.files[-1]["rows"] = count
        return count

    def write_json(self, name: str, value: Any) -> None:
        text = json.dumps(value, cls=_Encoder, ensure_ascii=False, indent=2)
        self.write(name, [text.encode("utf-8", "surrogatepass") + b"\n"])


class _Encoder(DjangoJSONEncoder):
    def default(self, value: Any) -> Any:
        return bytes(value).hex() if isinstance(value, bytes | memoryview) else super().default(value)


@contextmanager
def archive_at(path: Path) -> Iterator[PersonalArchive]:
    """A zip if the name says so, else a folder that is made for it. Only its owner can read it."""
    if path.exists():
        raise CannotWrite(f"{path} is there already: name another file")
    try:
        if path.suffix.lower() == ".zip":
            yield from _zip(path)
        else:
            path.mkdir(mode=0o700, parents=True)
            yield PersonalArchive(lambda name: _private(path / name))
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written ({error.strerror})") from error


def _zip(path: Path) -> Iterator[PersonalArchive]:
    """Under another name until it is whole: half a zip is useless."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with _private(unfinished) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as whole:
            yield PersonalArchive(lambda name: whole.open(name, "w", force_zip64=True))
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _private(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
