"""What people are told about who speaks."""

from __future__ import annotations

from django.utils.translation import gettext as _

from history.entries import Entry, ModelOutput


def speaker(entry: Entry) -> str:
    """Who says this; for an answer also which agent, and with which model."""
    if isinstance(entry, ModelOutput):
        return " · ".join(filter(None, [_("Assistant"), entry.agent, entry.model]))
    names = {
        "model_input": _("User"),
        "tool_results": _("Tool results"),
        "system_instruction_set": _("System instruction"),
        "tools_offered": _("Tools offered"),
        "notebook_set": _("Notebook"),
        "plan_set": _("Task plan"),
        "summary": _("Summary"),
        "gap": _("Something is missing here"),
    }
    return names.get(entry.kind, entry.kind.replace("_", " "))
