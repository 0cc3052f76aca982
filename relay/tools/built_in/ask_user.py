"""The agent asks the person something and waits for the answer, however long that takes."""

from __future__ import annotations

from typing import Annotated

from django.utils.translation import gettext_lazy as _

from history.text.visible import has_visible_text
from relay.tools.base import ToolContext, ToolError, tool


@tool(directive="ask_user", summary=_("Asks the person and waits for the answer"))
def ask_user(
    context: ToolContext,
    question: Annotated[str, "The question, with whatever is needed to answer it."],
    choices: Annotated[list[str] | None, "Answers to pick from, if there are only a few."] = None,
) -> str:
    """Ask the person a question and wait for the answer. Use it when only they can decide or know."""
    if not has_visible_text(question):
        raise ToolError("The question is empty: write what the person is to answer.")
    return "The question was asked."
