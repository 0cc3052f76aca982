"""What programs wrap around the words of a person: reminders, notes on the surroundings.

A page folds them away, so that one reads what somebody said. Nothing stored changes, and only what stands on lines of
its own is taken for such a block: whoever writes about a tag in mid-sentence is shown as they wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Those of `titles.NOISE_TAGS` that no person types to mark words of their own.
WRAPPERS = (
    "system-reminder", "environment_context", "environment_details", "session_context", "hook_context",
    "user_instructions", "user-prompt-submit-hook", "task-notification", "ide_opened_file", "ide_selection",
    "local-command-caveat",
)  # fmt: skip
_OPENS = re.compile(rf"^[ \t]*<({'|'.join(WRAPPERS)})>", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class TaggedText:
    """Words of somebody, or what stood within the tags named `tag`."""

    text: str
    tag: str = ""


def split_client_tags(text: str) -> list[TaggedText]:
    """The text in order; a block that is never closed is left as it stands."""
    found: list[TaggedText] = []
    unclosed: set[str] = set()
    said_from, look_from = 0, 0
    while opening := _OPENS.search(text, look_from):
        closing = f"</{opening[1]}>"
        end = -1 if opening[1] in unclosed else text.find(closing, opening.end())
        if end < 0:
            unclosed.add(opening[1])
            look_from = opening.end()
            continue
        _add_said(found, text[said_from : opening.start()])
        found.append(TaggedText(text[opening.end() : end].strip("\n"), tag=opening[1]))
        said_from = look_from = end + len(closing)
    _add_said(found, text[said_from:])
    return found


def _add_said(found: list[TaggedText], text: str) -> None:
    if text.strip():
        found.append(TaggedText(text))
