"""Template tags for the state of the relay's journal on the admin index."""

import re

from django import template
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _

from relay.digest.state import read_state

register = template.Library()
_FULL = re.compile(r"the journal holds its (\d+) bytes already")
register.simple_tag(read_state, name="read_journals")


@register.filter
def loss_words(why: str) -> str:
    """Reason of a loss, translated if known, else the text of the operating system."""
    if full := _FULL.search(why):
        return _("The journal is full: %(size)s.") % {"size": filesizeformat(int(full[1]))}
    if "no space left on device" in why.lower():
        return _("The disk was full.")
    return why
