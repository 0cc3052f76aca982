"""Shorthand for writing rules: severity, text and the vendor's error."""

from __future__ import annotations

from history.linting.values import LintSeverity
from history.text.lazy import gettext_noop as _

Written = dict[str, tuple[LintSeverity, str, str]]

REJECTED, ODD = LintSeverity.REJECTED, LintSeverity.ODD


OF_TOOLS: Written = {
    "tool-name": (
        REJECTED,
        _("A tool's name has 1 to 64 letters, digits, _ or -; %(name)s has others."),
        "does not match '^[a-zA-Z0-9_-]{1,64}$'",
    ),
    "same-tool": (REJECTED, _("Each tool is offered once; %(name)s is offered again."), "Tool names must be unique"),
}
