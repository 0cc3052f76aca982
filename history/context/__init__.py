"""From the history to what a model is to be told: deterministic, read-only, cut at turns, repaired with a report.

``render_context(snapshot, options)`` splits the path into turns, puts summaries in place of what they stand for, lets
through what a model may see, repairs each turn by itself and keeps as many of the newest turns as the limits allow.
Because a turn is prepared without a look at any other, the newest part of a path renders like the whole of it, and
``reaches_far_enough`` can tell a loader when to stop reading.

    rendering (the whole way) → limits (which turns) → turns (where they begin) → summaries, messages, curation
    views, in_json (for people who look for a fault)
"""

from history.context.curation import InvalidContextError, curate, is_valid, validate
from history.context.entries import ContextEntry, Role
from history.context.in_json import context_to_bytes, context_to_json, entry_view
from history.context.messages import SYSTEM_CHANNEL, Renderable, dropped_entry, to_context
from history.context.rendering import environment_text, reaches_far_enough, render_context
from history.context.summaries import NO_RANGE, Masks, active_summaries, edges_of, masked_results, summarised_ranges
from history.context.values import NO_NOTEBOOK, RENDERER_VERSION, Context, ContextOptions, Snapshot
from history.context.views import (
    FINISH_TOOL,
    VIEWS,
    View,
    curated_view,
    full_view,
    initial_view,
    is_task_finished,
    validated_view,
)

__all__ = [
    "FINISH_TOOL",
    "NO_NOTEBOOK",
    "NO_RANGE",
    "RENDERER_VERSION",
    "SYSTEM_CHANNEL",
    "VIEWS",
    "Context",
    "ContextEntry",
    "ContextOptions",
    "InvalidContextError",
    "Masks",
    "Renderable",
    "Role",
    "Snapshot",
    "View",
    "active_summaries",
    "context_to_bytes",
    "context_to_json",
    "curate",
    "curated_view",
    "dropped_entry",
    "edges_of",
    "entry_view",
    "environment_text",
    "full_view",
    "initial_view",
    "is_task_finished",
    "is_valid",
    "masked_results",
    "reaches_far_enough",
    "render_context",
    "summarised_ranges",
    "to_context",
    "validate",
    "validated_view",
]
