"""What a person wrote, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.translation import gettext as _

from history.entries import Part, Text
from relay.errors import RelayError

MAX_CHARS = 400_000

Client = Mapping[str, Any]


class NotPossible(RelayError):
    """What was asked makes no sense here; the text is for the person who asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A message as its writer left it. `agent` and `model` empty: as before in this session, or the default."""

    text: str
    attachments: Sequence[str] = ()
    agent: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """What became of it: an entry that is being answered by `run`, or a place in the queue, or only some words back."""

    seq: int = 0
    run: UUID | None = None
    is_branch: bool = False
    is_queued: bool = False
    queued_id: int = 0
    words: str = ""
    go_to: UUID | None = None


def check_draft(draft: Draft) -> None:
    if not settings.CHAT_HISTORY_ENABLED:
        raise NotPossible(_("History is off on this server, so the chat takes no message."))
    if not draft.text.strip() and not draft.attachments:
        raise NotPossible(_("Write something first."))
    if len(draft.text) > MAX_CHARS:
        raise NotPossible(_("This message is too long. Attach it as a file instead."))


def text_parts(text: str) -> tuple[Part, ...]:
    return (Text(text=text),) if text.strip() else ()
