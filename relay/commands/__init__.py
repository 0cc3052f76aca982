"""Slash commands: lines of the composer that need no model. They are only parsed here.

    /help    /history 20    /rollback 2    /fork #12    /title The build server    /sys_monitor cpu

A text is a command if its first word is a slash and the name of one: `/etc/hosts is empty` is a message like any other,
and so is `/tmp`. Only what looks like a slip of the keys (`/histroy`) is refused, so that it is not sent to a model by
mistake. Two slashes send a text that begins with one.
"""

from relay.commands.parsing import help_text, parse, spoken
from relay.commands.usage import BadCommand, Command, Suggestion, suggestions

__all__ = ["BadCommand", "Command", "Suggestion", "help_text", "parse", "spoken", "suggestions"]
