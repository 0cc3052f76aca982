"""Linter for conversations: broken vendor rules, their places and a repaired version.

    parse_input (pasted text) → a walk per dialect (form) and order (calls, results, turns) → linter (verdicts)
    repairing: the same through `history.context.repair` and the vendor's encoder

"Rejected": the vendor answers with an error. "Unportable": the vendor cannot carry something of the conversation.
"Odd": only some take it, or the vendor has an equivalent. The package is pure: JSON in, values out.
"""

from history.linting.linter import NAMES, is_taken, lint_request, lint_session
from history.linting.parse_input import LintInput, NotAConversation, parse_conversation, parse_text
from history.linting.rules import RULES
from history.linting.values import LintFinding, LintReport, LintSeverity, Repair, Rule, Verdict

__all__ = [
    "NAMES",
    "RULES",
    "LintFinding",
    "LintInput",
    "LintReport",
    "LintSeverity",
    "NotAConversation",
    "Repair",
    "Rule",
    "Verdict",
    "is_taken",
    "lint_request",
    "lint_session",
    "parse_conversation",
    "parse_text",
]
