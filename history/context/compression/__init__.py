"""Compression of long contexts, without the model call: masks, stretches to summarise, checks of summaries.

A summary is an entry that replaces others in the context. Nothing is removed, and retracting it brings them back.

    planning (masks, stretches) → record (request to the summariser) → checks → entries
"""

from history.context.compression.checks import Problem as Problem
from history.context.compression.checks import ProblemCode as ProblemCode
from history.context.compression.checks import find_problem as find_problem
from history.context.compression.checks import required_identifiers as required_identifiers
from history.context.compression.entries import SummaryOutcome as SummaryOutcome
from history.context.compression.entries import entries_of_plan as entries_of_plan
from history.context.compression.planning import CompressionPlan as CompressionPlan
from history.context.compression.planning import CompressionPolicy as CompressionPolicy
from history.context.compression.planning import SummarySpan as SummarySpan
from history.context.compression.planning import make_plan as make_plan
from history.context.compression.planning import stretch_between as stretch_between
from history.context.compression.record import OUTLINE as OUTLINE
from history.context.compression.record import RecordLine as RecordLine
from history.context.compression.record import as_pieces as as_pieces
from history.context.compression.record import ask_for_summary as ask_for_summary
from history.context.compression.record import earlier_summary as earlier_summary
from history.context.compression.record import parts_that_fit as parts_that_fit
from history.context.compression.record import record_budget as record_budget
