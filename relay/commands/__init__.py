"""Slash commands: lines of the composer that need no model. They are only parsed here.

A text is a command if its first word is a slash and the name of one: `/etc/hosts is empty` is a message. Only what
looks like a slip of the keys (`/histroy`) is refused. Two slashes send a text that begins with one.
"""

from relay.commands.parsing import help_text, parse, spoken
from relay.commands.usage import BadCommand, Command, Suggestion, suggestions

__all__ = ["BadCommand", "Command", "Suggestion", "help_text", "parse", "spoken", "suggestions"]
