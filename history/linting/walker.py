"""Base of the format checks: findings and steps of a conversation.

Rules of order are checked on steps (`history.linting.order`), so that each is written once for all dialects.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from history.dialects.json_access import items, string
from history.entries import EMPTY, JsonObject
from history.linting.rules import LintFinding, finding_of
from history.text.lazy import LazyText
from history.text.lazy import gettext_noop as _

Speaker = Literal["user", "model", "system"]
# The expected types that the rule "malformed" names.
A_LIST, A_TEXT, OBJECTS = LazyText(_("a list")), LazyText(_("a string")), LazyText(_("objects"))
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Step(NamedTuple):
    """A call, a result or other content. Steps that are sent as one message have its number."""

    kind: Literal["call", "result", "said"]
    speaker: Speaker
    place: str
    message: int
    call_id: str = ""
    name: str = ""
    weight: int = 2  # 0 for content that no other vendor accepts, 1 for white space


class LintWalk:
    """The findings and steps of one conversation. Subclasses check the request format of a dialect."""

    dialect = ""
    needs_visible_text = False  # white space counts as an empty text

    def __init__(self, body: JsonObject = EMPTY) -> None:
        self.findings: list[LintFinding] = []
        self.steps: list[Step] = []
        self.tools: list[tuple[str, str]] = []  # name, place
        self.message = 0
        self.role = ""
        self.speaker: Speaker = "user"
        self.walk(body)

    def walk(self, body: JsonObject) -> None:
        """Check the request. A stored session has none."""

    def find(self, name: str, place: str, /, **about: object) -> None:
        self.findings.append(finding_of(self.dialect, name, place, **about))

    def needs(self, is_met: bool, name: str, place: str, /, **about: object) -> bool:
        if not is_met:
            self.find(name, place, **about)
        return is_met

    def each(self, values: object, place: str) -> Iterator[tuple[str, JsonObject]]:
        """The objects of a list with their places; other values are reported."""
        for number, value in enumerate(items(values)):
            if self.needs(isinstance(value, Mapping), "malformed", f"{place}[{number}]", what=place, wanted=OBJECTS):
                yield f"{place}[{number}]", value

    def check_messages(self, body: JsonObject) -> None:
        self.needs(bool(string(body.get("model"))), "no-model", "model")
        messages = body.get("messages")
        if self.needs(isinstance(messages, list), "malformed", "messages", what="messages", wanted=A_LIST):
            self.needs(bool(messages), "no-messages", "messages")

    def begin_message(self, role: str) -> None:
        self.role = role
        self.message += 1
        self.speaker = speaker_of(role)

    def text(self, text: object, place: str) -> None:
        if self.needs(isinstance(text, str), "malformed", place, what="text", wanted=A_TEXT):
            weight = weight_of(str(text))
            self.needs(weight > (1 if self.needs_visible_text else 0), "empty-text", place)
            self.say(place, weight=weight)

    def say(self, place: str, *, weight: int = 2) -> None:
        self.steps.append(Step("said", self.speaker, place, self.message, weight=weight))

    def call(self, place: str, *, call_id: str, name: str) -> None:
        self.steps.append(Step("call", "model", place, self.message, call_id, name))

    def result(self, place: str, *, call_id: str, name: str = "") -> None:
        self.steps.append(Step("result", "user", place, self.message, call_id, name))

    def offer(self, name: object, place: str) -> None:
        self.tools.append((string(name), place))


def speaker_of(role: str) -> Speaker:
    return "model" if role == "assistant" else "system" if role in ("system", "developer") else "user"


def weight_of(text: str) -> int:
    return 2 if text.strip() else 1 if text else 0


def shortened(text: object) -> str:
    """Part of a sentence: the input may be of any length."""
    words = str(text)
    return words if len(words) <= 60 else words[:59] + "…"
