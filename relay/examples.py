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
        Example(_("Write a haiku about a quiet library."), _("A question to the model that is picked below.")),
        Example("/sys_monitor cpu", _("A tool without a model: how busy this machine is.")),
        Example("/help", _("Everything that works without a model.")),
    ]
