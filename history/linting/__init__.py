"""Linter for conversations: broken vendor rules, their places and a repaired version. Pure: JSON in, values out.

parse_input (pasted text) → a walk per dialect (form) and order (calls, results, turns) → linter (verdicts
and repairs, through `history.context.repair` and the vendor's encoder)
"""

from history.linting.linter import NAMES, is_taken, lint_request, lint_session
from history.linting.parse_input import LintInput, NotAConversation, parse_conversation, parse_text
from history.linting.rules import RULES, LintFinding, LintReport, LintSeverity, Repair, Rule, Verdict

__all__ = [
    "NAMES", "RULES", "LintFinding", "LintInput", "LintReport", "LintSeverity", "NotAConversation", "Repair", "Rule",
    "Verdict", "is_taken", "lint_request", "lint_session", "parse_conversation", "parse_text",
]  # fmt: skip
