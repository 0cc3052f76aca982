"""The agent itself asks that older turns be summarised; the loop does it before its next step."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from relay.tools.base import ToolContext, tool


@tool(directive="compress", summary=_("Lets older messages be summarised"))
def compress_chat_history(context: ToolContext) -> str:
    """Have the older part of this conversation replaced by a summary. Use it between two pieces of long work.

    Nothing is lost: read_session still reads the original messages.
    """
    return "The older part of the conversation is summarised before your next step."
