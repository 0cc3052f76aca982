"""Import formats, in the order in which they are tried on a file.

A format is a module with NAME, CLIENT, `recognises(sample)` and `read(source)`, a generator of conversations. The more
particular ones come first: nearly everything has `messages`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from history.formats.base import Conversation, UnreadableConversation
from history.formats.readers import (
    chatgpt,
    claude_ai,
    claude_code,
    codex,
    gemini_checkpoint,
    gemini_cli,
    nplt,
    requests,
    sharegpt,
)
from history.formats.sources import Sample, Source


class Reader(Protocol):
    @property
    def NAME(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def CLIENT(self) -> str: ...  # noqa: N802

    def recognises(self, sample: Sample) -> bool: ...

    def read(self, source: Source) -> Iterator[Conversation | UnreadableConversation]: ...


READERS: tuple[Reader, ...] = (
    claude_code,
    codex,
    gemini_cli,
    gemini_checkpoint,
    nplt,
    chatgpt,
    claude_ai,
    sharegpt,
    requests,
)


def reader_for(sample: Sample) -> Reader | None:
    return next((reader for reader in READERS if reader.recognises(sample)), None)
