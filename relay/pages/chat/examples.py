"""What a newcomer can try at once, without a key."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _


@dataclass(frozen=True, slots=True)
class Example:
    text: str
    why: str

    @property
    def is_command(self) -> bool:
        return self.text.startswith("/")


def examples() -> list[Example]:
    return [
        Example(_("Write a haiku about a quiet library."), _("Asks the model selected below.")),
        Example("/sys_monitor cpu", _("Runs a tool without a model: shows how busy this server is.")),
        Example("/help", _("Lists commands that need no model.")),
    ]
