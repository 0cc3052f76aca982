"""How it stands with the relay's journal, for the admin's front page."""

from __future__ import annotations

from django import template

from relay.gateway.digest.state import State, state_here

register = template.Library()


@register.simple_tag
def read_journals() -> State:
    return state_here()
