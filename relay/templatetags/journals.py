"""How it stands with the relay's journal, for the admin's front page."""

from __future__ import annotations

import re

from django import template
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from relay.digest.state import State, state_here

register = template.Library()


@register.simple_tag
def read_journals() -> State:
    return state_here()


_FULL = re.compile(r"the journal holds its (\d+) bytes already")


@register.filter
def loss_words(why: str) -> str:
    """Why something was lost: in the reader's language where we know the reason, else as the system says it."""
    if full := _FULL.search(why):
        return _("The journal holds all that it may: %(size)s.") % {"size": filesizeformat(int(full[1]))}
    if "no space left on device" in why.lower():
        return _("There was no room left on the disk.")
    return why
