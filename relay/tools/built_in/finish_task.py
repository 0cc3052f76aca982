"""The agent says that it is done; `history.context.is_task_finished` knows the tool by its name."""

from __future__ import annotations

from typing import Annotated

from django.utils.translation import gettext_lazy as _

from history.context import FINISH_TOOL
from relay.tools.base import ToolContext, ToolError, tool


@tool(name=FINISH_TOOL, directive="finish_task", summary=_("Ends the task with its result"))
def finish_task(
    context: ToolContext, result: Annotated[str, "What came of the task, in full: the person reads this."]
) -> str:
    """End the task with its result. Call it once, when nothing is left to do, and call nothing else beside it."""
    if not result.strip():
        raise ToolError("The result is empty: write what came of the task, the person reads it.")
    return "The task is finished."
