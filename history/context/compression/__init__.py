"""Compression, the part without a model: what is masked, what is summarised, what stays, and whether a summary is good.

A summary is one more entry that names what it stands for; nothing is removed, and taking it back brings everything
again. So all that is to be decided is which entries it stands for. `make_plan` decides that; `record` writes down what
the model that summarises is told, as data; `checks` says what is wrong with its summary; `entries` makes entries of it.

    planning (masks, stretches) → record (what the summariser reads) → checks → entries
"""

from history.context.compression.checks import Problem, ProblemCode, find_problem, required_identifiers
from history.context.compression.entries import Written, entries_of_plan
from history.context.compression.planning import (
    CompressionPlan,
    CompressionPolicy,
    SummarySpan,
    make_plan,
    stretch_between,
)
from history.context.compression.record import (
    OUTLINE,
    RecordLine,
    as_pieces,
    ask_for_summary,
    earlier_summary,
    parts_that_fit,
    room_for_record,
)

__all__ = [
    "OUTLINE",
    "CompressionPlan",
    "CompressionPolicy",
    "Problem",
    "ProblemCode",
    "RecordLine",
    "SummarySpan",
    "Written",
    "as_pieces",
    "ask_for_summary",
    "earlier_summary",
    "entries_of_plan",
    "find_problem",
    "make_plan",
    "parts_that_fit",
    "required_identifiers",
    "room_for_record",
    "stretch_between",
]
