"""The environment of a call: notebook, date, system, working folders and live panels.

All of it is made anew for each call, is part of the context only, and is stored with the exchange, so that a context
can be reproduced. None of it becomes an entry.
"""

import logging
import os
import platform
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils import formats, timezone, translation
from django.utils.translation import pgettext

from history.context.rendering import environment_text
from relay.models import Agent, User
from relay.tools.base import Tool, ToolContext, zone_of
from relay.tools.built_in import notebooks
from relay.tools.registry import toolbox

logger = logging.getLogger(__name__)

MOST_SCREEN_CHARS = 4_000


def environment_options(user: User, session_id: UUID, agent: Agent) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the context, and what the exchange notes of where they came from."""
    notebook = notebooks.read(user, agent.name)
    context = ToolContext(user=user, session_id=session_id, agent=agent.name)
    options: dict[str, Any] = {"live_screen": live_screen(context, agent) or None}
    if notebook.version:
        options["notebook"] = notebook.content
    if agent.environment:
        options |= {"environment": environment_message(user, agent, notebook.content), "inject_notebook": False}
    noted = {"notebook": {"session": str(notebook.session_id), "version": notebook.version}}
    return options, noted if notebook.version else {}


def environment_message(user: User, agent: Agent, notebook: str) -> str:
    """The first message of a conversation with an agent that asks for it."""
    parts = [
        "This is Parley. We are setting up the context for our chat.\n"
        f"Today's date is {local_date(user)} (formatted according to the user's locale).\n"
        f"My operating system is: {platform.system().lower()}\n"
        f"The project's temporary directory is: {tempfile.gettempdir()}"
    ]
    if trees := list_folders(agent.folders):
        parts.append("\n".join(["I work in these folders; here is what is in them:", *trees]))
    if notebook:
        parts.append(f"[Memory Notebook]\n{notebook}")
    return environment_text(parts)


def local_date(user: User) -> str:
    """The date where this person is, as they write it."""
    with translation.override(getattr(user, "language", "") or None):
        # Translators: a whole date with the day of the week, in the letters of Django's date filter.
        how = pgettext("date", "l, F j, Y")
        return str(formats.date_format(timezone.localtime(timezone=zone_of(user)), how))


def live_screen(context: ToolContext, agent: Agent) -> str:
    """What the agent's tools show of this moment, if it is to see that."""
    if not agent.live_screen:
        return ""
    panels = (_panel(tool, context) for tool in toolbox(agent.tools).values())
    return "\n\n".join(filter(None, panels))[:MOST_SCREEN_CHARS]


def _panel(tool: Tool, context: ToolContext) -> str:
    if tool.panel is None:
        return ""
    try:
        return f"{tool.name}\n{tool.panel(context)}"
    except Exception:
        # A call is worth more than what it would have shown.
        logger.exception("the panel of %s failed", tool.name)
        return f"{tool.name}\nnot available at the moment"


MOST_LINES = 200
MOST_FOLDERS = 20
AT_ONCE = 8
IGNORED = frozenset({"node_modules", "__pycache__", "venv", "dist", "build", "target"})


class FolderNotAllowed(Exception):
    """The folder is not there, or is outside of every root that the operator allows."""


def resolve_folder(folder: str) -> Path:
    """The folder, links followed. Raises FolderNotAllowed, which does not say whether a folder exists elsewhere."""
    try:
        place = Path(folder).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise FolderNotAllowed(folder) from None
    if place.is_dir() and any(place.is_relative_to(Path(root).resolve()) for root in settings.PARLEY_FOLDERS):
        return place
    raise FolderNotAllowed(folder)


def list_folders(folders: Sequence[str]) -> list[str]:
    """One for each folder that may be listed, in their order; all are read side by side."""
    wanted = list(dict.fromkeys(folders))[:MOST_FOLDERS]
    with ThreadPoolExecutor(max_workers=AT_ONCE) as readers:
        return [text for text in readers.map(_listing_or_nothing, wanted) if text]


def list_folder(place: Path) -> str:
    """A folder as an indented tree, level by level until there are enough lines."""
    found = list(islice(_entries_below(place), MOST_LINES + 1))
    lines = [_line(names, is_folder) for names, is_folder in sorted(found[:MOST_LINES])]
    more = ["… and more"] if len(found) > MOST_LINES else []
    return "\n".join([f"{place}{os.sep}", *lines, *more])


def _listing_or_nothing(folder: str) -> str:
    try:
        return list_folder(resolve_folder(folder))
    except FolderNotAllowed:
        return ""


def _entries_below(place: Path) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The names that lead to each entry, the uppermost first, and whether it is a folder."""
    folders: deque[tuple[str, ...]] = deque([()])
    while folders:
        above = folders.popleft()
        for entry in _entries(place.joinpath(*above)):
            names, is_folder = (*above, entry.name), entry.is_dir(follow_symlinks=False)
            yield names, is_folder
            if is_folder:
                folders.append(names)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".") and entry.name not in IGNORED]
    except OSError:
        return
    yield from sorted(shown, key=lambda entry: entry.name)


def _line(names: tuple[str, ...], is_folder: bool) -> str:
    """A name may hold anything, and a listing has one line for each."""
    name = names[-1].encode(errors="replace").decode().replace("\n", "�").replace("\r", "�")
    return f"{'  ' * len(names)}{name}{os.sep if is_folder else ''}"
