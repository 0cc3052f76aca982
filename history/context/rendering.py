"""The whole way from a snapshot to a context, and how far back a loader has to read for it."""

from __future__ import annotations

from collections.abc import Iterable

from history.context.curation import validate
from history.context.entries import ContextEntry, Role
from history.context.limits import choose
from history.context.repair import Code, Remark, RepairReport, with_opening, with_unique_ids
from history.context.tokens import calibrate, estimate_context, estimate_text
from history.context.turns import turns_newest_first
from history.context.values import NO_NOTEBOOK, Context, ContextOptions, Snapshot
from history.entries import Text


def render_context(snapshot: Snapshot, options: ContextOptions) -> Context:
    """What a model is to be told. Same snapshot and same options, same bytes."""
    fixed = fixed_tokens(snapshot, options)
    chosen = choose(turns_newest_first(snapshot), fixed=fixed, options=options)
    remarks = [remark for turn in chosen.turns for remark in turn.remarks]
    said = [entry for turn in chosen.turns for entry in turn.entries]
    entries = with_opening([*environment_of(options), *with_unique_ids(said, remarks=remarks)], remarks=remarks)
    entries = _with_live_screen(entries, options.live_screen, remarks)
    validate(entries)
    return Context(
        entries=entries,
        system=system_text(snapshot, options),
        tools=snapshot.tools,
        report=RepairReport((*remarks, *chosen.remarks)),
        tokens=calibrate(fixed + sum(turn.tokens for turn in chosen.turns), factor=options.calibration),
    )


def reaches_far_enough(snapshot: Snapshot, options: ContextOptions) -> bool:
    """Whether nothing older than what this snapshot holds can matter under these limits.

    A loader reads the path backwards and asks after each page: ``loaded_from`` is the oldest seq it has read (0 once
    it came to the start). Let each page be twice as long as the one before, so that asking stays cheap.
    """
    if snapshot.is_whole:
        return True
    if options.max_turns is options.max_messages is options.max_tokens is None:
        return False
    fixed = fixed_tokens(snapshot, options)
    return choose(turns_newest_first(snapshot), fixed=fixed, options=options).hit_a_limit


def system_text(snapshot: Snapshot, options: ContextOptions) -> str:
    """The instruction, and the notebook if somebody has written into it."""
    notebook = (snapshot.notebook if options.notebook is None else options.notebook).strip()
    if not options.inject_notebook or notebook in ("", NO_NOTEBOOK):
        return snapshot.system_instruction
    return f"{snapshot.system_instruction}\n\n[Memory Notebook]\n{notebook}".strip()


def environment_text(parts: Iterable[str]) -> str:
    """The text of the first message: what surrounds the conversation, a reminder, and that the setting-up is over."""
    closing = (
        "Reminder: Do not return an empty response when a tool call is required.",
        "My setup is complete. I will provide my first command in the next turn.",
    )
    return "\n\n".join((*parts, *closing)).strip()


def environment_of(options: ContextOptions) -> tuple[ContextEntry, ...]:
    if not options.environment:
        return ()
    return (ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=options.environment),)),)


def fixed_tokens(snapshot: Snapshot, options: ContextOptions) -> int:
    """What is sent whatever the turns are; not yet multiplied by the calibration."""
    environment, system = environment_of(options), system_text(snapshot, options)
    return estimate_context(environment, system=system, tools=snapshot.tools) + estimate_text(options.live_screen or "")


def _with_live_screen(
    entries: tuple[ContextEntry, ...], live_screen: str | None, remarks: list[Remark]
) -> tuple[ContextEntry, ...]:
    """Decorate the latest input or result, and no other."""
    if not live_screen:
        return entries
    for place in range(len(entries) - 1, -1, -1):
        if entries[place].role in (Role.MODEL_INPUT, Role.TOOL_RESULT):
            decorated = entries[place].with_live_screen(live_screen)
            return (*entries[:place], decorated, *entries[place + 1 :])
    remarks.append(Remark(code=Code.LIVE_SCREEN_LEFT_OUT))
    return entries
