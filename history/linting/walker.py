"""Base of the format checks: findings and steps of a conversation.

A step is a call, a result or something said, with its place in what was given. Rules of order are checked on steps
(`history.linting.order`), so that each is written once for all dialects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from history.dialects.json_access import items, string
from history.linting.rules import rule
from history.linting.values import LintFinding
from history.text.lazy import LazyText
from history.text.lazy import gettext_noop as _

Speaker = Literal["user", "model", "system"]
# What is wanted where something else stands.
A_LIST, A_TEXT, OBJECTS = LazyText(_("a list")), LazyText(_("a text")), LazyText(_("objects"))
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """``message`` numbers what was sent as one. ``weight`` of something said: 0 nothing that could be carried to
    another vendor, 1 white space, 2 something."""

    kind: Literal["call", "result", "said"]
    speaker: Speaker
    place: str
    message: int
    call_id: str = ""
    name: str = ""
    weight: int = 2


class LintWalk:
    """One conversation in one language, as it is looked at."""

    def __init__(self, dialect: str) -> None:
        self.dialect = dialect
        self.findings: list[LintFinding] = []
        self.steps: list[Step] = []
        self.tools: list[tuple[str, str]] = []
        self.message = 0
        self.speaker: Speaker = "user"

    def find(self, name: str, place: str, /, **about: Any) -> None:
        self.findings.append(LintFinding(rule=rule(self.dialect, name), place=place, about=about))

    def needs(self, is_so: bool, name: str, place: str, /, **about: Any) -> bool:
        if not is_so:
            self.find(name, place, **about)
        return is_so

    def each(self, given: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The objects of a list with their places; other values are reported."""
        for number, value in enumerate(items(given)):
            if self.needs(isinstance(value, Mapping), "malformed", f"{place}[{number}]", what=place, wanted=OBJECTS):
                yield f"{place}[{number}]", value

    def say(self, place: str, *, weight: int = 2) -> None:
        self.steps.append(Step(kind="said", speaker=self.speaker, place=place, message=self.message, weight=weight))

    def call(self, place: str, *, call_id: str, name: str) -> None:
        self.steps.append(
            Step(kind="call", speaker="model", place=place, message=self.message, call_id=call_id, name=name)
        )

    def result(self, place: str, *, call_id: str, name: str = "") -> None:
        self.steps.append(
            Step(kind="result", speaker="user", place=place, message=self.message, call_id=call_id, name=name)
        )

    def offer(self, name: Any, place: str) -> None:
        self.tools.append((string(name), place))


def weight_of(text: str) -> int:
    return 2 if text.strip() else 1 if text else 0


def shortened(text: Any) -> str:
    """Part of a sentence: what strangers wrote may be of any length."""
    words = str(text)
    return words if len(words) <= 60 else words[:59] + "…"
