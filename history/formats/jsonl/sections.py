"""Extra sections of a full export, registered by other apps.

The record does not know them. They say what they are called, give their lines, and take them back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ExtraSection:
    """`name` is the `type` of its lines. `take` makes one again, and says why where it did not ("" if it did)."""

    name: str
    give: Callable[[], Iterable[Mapping[str, Any]]]
    take: Callable[[Mapping[str, Any]], str]


_sections: dict[str, ExtraSection] = {}


def register_section(section: ExtraSection) -> None:
    _sections[section.name] = section


def sections() -> Mapping[str, ExtraSection]:
    return dict(sorted(_sections.items()))
