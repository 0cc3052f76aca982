"""Sessions that staff have linked: each goes on from the one before it, and they are read as one transcript.

A link is a column and nothing else: entries, numbers and seals stay where they are, and it can be taken back at any
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from history.models import Session
from history.record.selectors import PAGE
from history.transcripts.page import Transcript, TranscriptPosition, read_page


@dataclass(frozen=True, slots=True)
class Section:
    """What is shown of one session. `is_begun`: its beginning was on a page before this one."""

    session: Session
    transcript: Transcript
    is_begun: bool

    @property
    def prefix(self) -> str:
        """Entries of different sessions have the same numbers."""
        return f"s{self.session.pk.hex}-"


@dataclass(frozen=True, slots=True)
class Part:
    """One page of the whole; `newer` is the address of the next one."""

    sections: tuple[Section, ...]
    newer: str


def read_part(chain: Sequence[Session], *, number: int = 0, after: int = 0) -> Part:
    """From the session in this place on, after that entry, until a page is full."""
    sections: list[Section] = []
    count = 0
    while number < len(chain):
        transcript = read_page(chain[number], TranscriptPosition(after=after, base=chain[number].get_absolute_url()))
        sections.append(Section(chain[number], transcript, is_begun=after > 0))
        count += len(transcript.rows)
        if transcript.newer:
            return Part(tuple(sections), _link(number, transcript.last))
        number, after = number + 1, 0
        if count >= PAGE and number < len(chain):
            return Part(tuple(sections), _link(number, 0))
    return Part(tuple(sections), "")


def _link(number: int, after: int) -> str:
    return "?" + urlencode({"part": number + 1, "after": after})
