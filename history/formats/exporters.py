"""The formats that the record is exported in: what each is called, how its files are named, and who writes them.

An exporter writes one session at a time, along its path, in pieces, and notes what its format cannot carry. Either all
sessions go into one stream (`one_file`), or each has a file of its own and several of them go into a zip.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.utils.functional import Promise

from history.formats.base import Notes
from history.models import Session

Write = Callable[[Session, Notes], Iterator[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """`write` is None for our own format, whose lines depend on each other."""

    name: str
    label: str | Promise
    media_type: str
    suffix: str
    write: Write | None
    one_file: bool = False
    head: bytes = b""
    file_name: Callable[[Session], str] | None = None

    def name_of(self, session: Session) -> str:
        if self.file_name is not None:
            return self.file_name(session)
        return f"{session.created_at:%Y-%m-%d}-{session.pk}{self.suffix}"


EXPORTERS: dict[str, Exporter] = {}


def register(exporter: Exporter) -> Exporter:
    EXPORTERS[exporter.name] = exporter
    return exporter
