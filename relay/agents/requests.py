"""Requests to models: context, environment and options of a call, rendered from the history and recorded first.

The environment (notebook, date, system, working folders, live panels) is made anew for each call, is part of the
context only, and is stored with the exchange, so that a context can be reproduced. None of it becomes an entry.
"""

import logging
import os
import platform
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import QuerySet
from django.utils import formats, timezone, translation
from django.utils.translation import pgettext

from history.context.rendering import environment_text, render_context
from history.context.tokens import estimate_context
from history.context.values import RENDERER_VERSION, Context, ContextOptions, RemarkCode
from history.db.prepared import prepared
from history.dialects import CallOptions, Switches
from history.entries import JsonObject, Media
from history.models import Blob, Exchange, Session, TokenCalibration
from history.record import exchanges, selectors
from relay.models import Agent, User
from relay.models.agents import RoleName
from relay.providers.base import Model, without_unsupported_images
from relay.providers.http import Route
from relay.tools.base import Tool, ToolContext, toolbox, zone_of
from relay.tools.built_in import notebooks, plans
from relay.usage import allowances
from relay.usage.allowances import UserLimits

# Tokens of a model whose window is not known, and the part of any window that is left for the answer.
UNKNOWN_WINDOW = 16_000
ANSWER_TOKENS = 4_096
# An estimate may be off by some percent even after calibration.
MARGIN = 0.95
OVERFULL = frozenset({RemarkCode.LIMIT_TOKENS, RemarkCode.OVER_TOKENS})
logger = logging.getLogger(__name__)

MOST_SCREEN_CHARS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedCall:
    """A call before it is recorded: first it reserves its share of the user's `limits`.

    `is_full`: the context is so long that older turns should be summarised first.
    """

    session: Session
    leaf: int
    role: str
    context: Context
    options: CallOptions
    route: Route
    limits: UserLimits
    tokens: int
    inputs: JsonObject
    metadata: JsonObject
    is_full: bool = False


def render_call(
    session_id: UUID, *, owner: User, leaf: int, agent: Agent, role: RoleName, route: Route, client: JsonObject
) -> RenderedCall:
    session = selectors.stored_session.get(session_id)
    session.owner = owner
    limits = allowances.check_budget(session.owner)
    around, sources = environment_options(session.owner, session_id, agent)
    shown = ContextOptions(
        max_turns=agent.max_turns or None,
        max_tokens=context_limit(route.model, agent.max_answer_tokens),
        calibration=read_calibration(route.model.name),
        **around,
    )
    taken = selectors.snapshot(session, leaf=leaf, options=shown)
    if role != "executor" or not route.model.takes_tools:
        taken = replace(taken, tools=())
    elif plans.TOOL in agent.tools:
        shown = replace(shown, live_screen=plans.on_screen(taken.plan, shown.live_screen))
    context = without_unsupported_images(render_context(taken, shown), route.model)
    limit = compression_limit(route.model, agent)
    options = CallOptions(
        model=route.model.name,
        provider=route.provider.name,
        max_tokens=agent.max_answer_tokens or None,
        temperature=agent.temperature,
        reasoning_effort=agent.reasoning_effort,
        stream=True,
        media=_media_in(context).__getitem__,
        switches=route.model.switches or Switches(),
    )
    repairs = sorted({remark.code.value for remark in context.report.remarks})
    inputs = {"context": shown.to_json(), "role": role, "tools": [tool.name for tool in context.tools], **sources}
    if not route.model.takes_images:
        inputs["pictures"] = "named"
    return RenderedCall(
        session=session,
        leaf=leaf,
        role=role,
        context=context,
        options=options,
        route=route,
        limits=limits,
        tokens=estimate_context(context.entries, system=context.system, tools=context.tools),
        inputs=inputs,
        metadata={**client, "repairs": repairs} if repairs else client,
        is_full=bool(limit) and (context.tokens > limit or not OVERFULL.isdisjoint(context.report.codes)),
    )


def record_call(rendered: RenderedCall, agent: str) -> Exchange:
    route, session = rendered.route, rendered.session
    return exchanges.open_exchange(
        session,
        owner=session.owner,
        after=rendered.leaf,
        inputs=rendered.inputs,
        agent=agent,
        provider=route.provider.name,
        model=route.model.name,
        dialect=route.provider.dialect,
        renderer_version=RENDERER_VERSION,
        estimated_tokens=rendered.tokens,
        metadata=dict(rendered.metadata),
    )


def context_limit(model: Model, answer_tokens: int | None) -> int:
    """The most tokens of a context, so that an answer of so many still fits after it."""
    if model.context_tokens:
        return model.context_tokens
    window = model.window or UNKNOWN_WINDOW
    answer = min(answer_tokens or ANSWER_TOKENS, window // 4)
    return max(256, int((window - answer) * MARGIN))


def compression_limit(model: Model, agent: Agent) -> int:
    """Tokens to send before older turns are summarised. 0 means that they are left out instead."""
    if not model.can_summarise:
        return 0
    share = agent.compress_at or settings.PARLEY_COMPRESS_AT
    return min(int((model.window or UNKNOWN_WINDOW) * share), context_limit(model, agent.max_answer_tokens))


def read_calibration(model: str) -> float:
    known = _factors.first(model)
    return known if known and known > 0 else 1.0


@prepared
def _factors(model: str) -> QuerySet[TokenCalibration, float]:
    return TokenCalibration.objects.filter(model=model).values_list("factor", flat=True)


def _media_in(context: Context) -> dict[str, bytes]:
    """The bytes of every attachment in it: dialects have no database."""
    parts = [part for entry in context.entries for part in entry.parts]
    parts += [part for entry in context.entries for result in entry.results or () for part in result.parts]
    names = {part.sha256 for part in parts if isinstance(part, Media) and part.sha256}
    found = Blob.objects.filter(pk__in=names).values_list("sha256", "data") if names else ()
    return {name: bytes(data) for name, data in found}


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
