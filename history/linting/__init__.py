"""Linter for conversations: broken vendor rules, their places and a repaired version.

    given (what was pasted) → a walk per language (form) and order (calls, results, turns) → judging (verdicts)
    repairing: the same through `history.context.repair` and the vendor's encoder

"Rejected" is what a vendor answers with an error; "unportable" what this conversation has and that vendor cannot carry;
"odd" what only some take, or what is told there in another way. Everything here is pure: JSON in, values out.
"""

from history.linting.linter import NAMES, is_taken, lint_request, lint_session
from history.linting.parse_input import LintInput, NotAConversation, given, read_text
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
    "given",
    "is_taken",
    "lint_request",
    "lint_session",
    "read_text",
]
