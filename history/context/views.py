"""Views for somebody who looks for a fault: what a session starts with, all of it, what is fit to send, what is sent.

Also whether a task is finished.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from history.context.curation import curate
from history.context.entries import ContextEntry
from history.context.messages import to_context
from history.context.rendering import environment_of, render_context
from history.context.summaries import masked_results, pieces_of
from history.context.turns import messages_of
from history.context.values import ContextOptions, Snapshot
from history.entries import Gap, ModelInput, ModelOutput, Node, ToolResults


def initial_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    return environment_of(options)


def full_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    """Everything that was said, as it was said: no summary in place of anything, nothing left out."""
    said = (
        to_context(node.entry, seq=node.seq)
        for node in snapshot.nodes
        if isinstance(node.entry, ModelInput | ModelOutput | ToolResults)
    )
    return (*environment_of(options), *said)


def curated_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    masked = masked_results(snapshot.nodes)
    messages = messages_of(pieces_of(snapshot), masked, session_id=snapshot.session_id, remarks=[])
    return curate((*environment_of(options), *messages))


def validated_view(snapshot: Snapshot, options: ContextOptions) -> tuple[ContextEntry, ...]:
    """What would be sent if there were no limits."""
    return render_context(snapshot, replace(options, max_turns=None, max_messages=None, max_tokens=None)).entries


View = Callable[[Snapshot, ContextOptions], tuple[ContextEntry, ...]]

VIEWS: dict[str, View] = {
    "initial": initial_view,
    "full": full_view,
    "curated": curated_view,
    "validated": validated_view,
}

FINISH_TOOL = "finish_task"


def is_task_finished(nodes: Iterable[Node], *, tool: str = FINISH_TOOL) -> bool:
    """Whether the last answer asked to finish the task and nothing but its results came after it."""
    answered: set[str] = set()
    for node in reversed(tuple(nodes)):
        entry = node.entry
        if isinstance(entry, ToolResults):
            answered |= {result.call_id for result in entry.results}
        elif isinstance(entry, ModelOutput):
            calls = entry.tool_requests
            asked = any(call.name == tool for call in calls)
            return asked and entry.status == "complete" and answered <= {call.call_id for call in calls}
        elif isinstance(entry, ModelInput | Gap):
            return False
    return False
