"""What surrounds a call: the notebook, what an agent is told of its surroundings, and what its tools show just now.

All of it is made anew for each call, goes into the context only, and is written down with the exchange, so that what a
model was told can be had again. Nothing of it becomes an entry.
"""

from __future__ import annotations

import logging
import platform
import tempfile
from typing import Any

from django.utils import formats, timezone, translation
from django.utils.translation import pgettext

from history.context import environment_text
from relay.agents.folders import list_folders
from relay.agents.settings import AgentSettings
from relay.tools import notebooks
from relay.tools.base import ToolContext
from relay.tools.registry import toolbox
from relay.tools.times import zone_of

logger = logging.getLogger(__name__)

MOST_SCREEN_CHARS = 4_000


def environment_options(context: ToolContext, agent: AgentSettings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the context, and what the exchange notes of where they came from."""
    notebook = notebooks.read(context.user, agent.name)
    options: dict[str, Any] = {"live_screen": live_screen(context, agent) or None}
    if notebook.version:
        options["notebook"] = notebook.content
    if agent.environment:
        options |= {
            "environment": environment_message(context.user, agent, notebook.content),
            "inject_notebook": False,
        }
    noted = {"notebook": {"session": str(notebook.session_id), "version": notebook.version}}
    return options, noted if notebook.version else {}


def environment_message(person: Any, agent: AgentSettings, notebook: str) -> str:
    """The first message of a conversation with an agent that asks for it."""
    parts = [
        "\n".join(
            [
                "This is Parley. We are setting up the context for our chat.",
                f"Today's date is {local_date(person)} (formatted according to the user's locale).",
                f"My operating system is: {platform.system().lower()}",
                f"The project's temporary directory is: {tempfile.gettempdir()}",
            ]
        )
    ]
    if trees := list_folders(agent.folders):
        parts.append("\n".join(["I work in these folders; here is what is in them:", *trees]))
    if notebook:
        parts.append(f"[Memory Notebook]\n{notebook}")
    return environment_text(parts)


def local_date(person: Any) -> str:
    """The date where this person is, as they write it."""
    with translation.override(getattr(person, "language", "") or None):
        # Translators: a whole date with the day of the week, in the letters of Django's date filter.
        how = pgettext("date", "l, F j, Y")
        return str(formats.date_format(timezone.localtime(timezone=zone_of(person)), how))


def live_screen(context: ToolContext, agent: AgentSettings) -> str:
    """What the agent's tools show of this moment, if it is to see that."""
    if not agent.live_screen:
        return ""
    return "\n\n".join(panel for tool in toolbox(agent.tools) if (panel := _panel(tool, context)))[:MOST_SCREEN_CHARS]


def _panel(tool: Any, context: ToolContext) -> str:
    if tool.panel is None:
        return ""
    try:
        return f"{tool.name}\n{tool.panel(context)}"
    except Exception:
        # A call is worth more than what it would have shown.
        logger.exception("the panel of %s failed", tool.name)
        return f"{tool.name}\nnot available just now"
