"""Context of a model call: rendered from the history, cut at turns, repaired with a report.

``render_context(snapshot, options)`` splits the path into turns, replaces summarised entries, drops what a model must
not see, repairs each turn and keeps the newest turns within the limits. ``reaches_far_enough`` tells a loader when to
stop.

    rendering → turns → messages, repair → values, remarks; tokens
"""

from history.context.messages import NO_RANGE as NO_RANGE
from history.context.messages import SYSTEM_CHANNEL as SYSTEM_CHANNEL
from history.context.messages import Renderable as Renderable
from history.context.messages import active_summaries as active_summaries
from history.context.messages import dropped_entry as dropped_entry
from history.context.messages import edges_of as edges_of
from history.context.messages import masked_results as masked_results
from history.context.messages import summarised_ranges as summarised_ranges
from history.context.messages import to_context as to_context
from history.context.rendering import FINISH_TOOL as FINISH_TOOL
from history.context.rendering import VIEWS as VIEWS
from history.context.rendering import environment_text as environment_text
from history.context.rendering import full_view as full_view
from history.context.rendering import is_task_finished as is_task_finished
from history.context.rendering import reaches_far_enough as reaches_far_enough
from history.context.rendering import render_context as render_context
from history.context.repair import InvalidContextError as InvalidContextError
from history.context.repair import curate as curate
from history.context.repair import is_valid as is_valid
from history.context.repair import validate as validate
from history.context.values import NO_NOTEBOOK as NO_NOTEBOOK
from history.context.values import RENDERER_VERSION as RENDERER_VERSION
from history.context.values import Context as Context
from history.context.values import ContextEntry as ContextEntry
from history.context.values import ContextOptions as ContextOptions
from history.context.values import Role as Role
from history.context.values import Snapshot as Snapshot
from history.context.values import context_to_bytes as context_to_bytes
from history.context.values import context_to_json as context_to_json
from history.context.values import entry_view as entry_view
