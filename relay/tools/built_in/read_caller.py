"""What was said in the conversation out of which an agent was called, up to the call: to read, and nothing else."""

from __future__ import annotations

from typing import Annotated

from django.utils.translation import gettext_lazy as _

from history.models import Session
from relay.tools.base import ToolContext, ToolError, tool
from relay.tools.built_in.read_session import opened, stretch


@tool(is_for_agents=True, summary=_("Shows a called agent the conversation of its caller; it has this tool by itself"))
def read_caller(
    context: ToolContext,
    before: Annotated[int | None, "Show what stands before the entry with this number."] = None,
    limit: Annotated[int, "How many entries, at most 100."] = 20,
) -> str:
    """Read the conversation of whoever called you, up to the call: its newest entries, or those before an entry."""
    mine = Session.objects.only("parent_id", "metadata").get(pk=context.session_id)
    if mine.parent_id is None:
        raise ToolError("Nobody called you: you are talking to the person.")
    caller = opened(context, str(mine.parent_id))
    called_at = mine.metadata.get("called_at")
    leaf = called_at if isinstance(called_at, int) else None
    return stretch(context, caller, before=before, leaf=leaf, limit=limit)
