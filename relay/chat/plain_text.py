"""The last messages of a conversation as plain text, for terminals and for `/history`."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history.models import Message, Session
from history.record.selectors import PAGE, messages_of

MOST_CHARS = 2_000


def plain_history(session: Session, *, count: int = PAGE) -> str:
    """Who said what, oldest first; a sentence of its own where nobody has said anything yet."""
    said = [message for message in messages_of(session, limit=count).messages if _is_said(message)]
    if not said:
        return _("No conversation history yet")
    lines = [f"{_speaker(message)}: {_text(message)}" for message in said]
    return "\n\n".join([_("=== Conversation history ==="), *lines])


def _is_said(message: Message) -> bool:
    return not message.is_internal and bool(message.content) and message.role != Message.Role.SYSTEM


def _speaker(message: Message) -> str:
    speakers = {
        "user": pgettext("speaker", "User"),
        "assistant": pgettext("speaker", "Assistant"),
        "tool": pgettext("speaker", "Tool"),
        "system": pgettext("speaker", "System"),
    }
    return speakers[message.role]


def _text(message: Message) -> str:
    return message.content if len(message.content) <= MOST_CHARS else f"{message.content[:MOST_CHARS]}…"
