"""What the templates of the rail ask for. The rail reads its own first page, so any page can include it."""

from __future__ import annotations

from typing import Any

from django import template

from history.models import Session
from relay.pages.sidebar.query import Rail, SidebarQuery, rail_of

register = template.Library()


@register.simple_tag(takes_context=True)
def read_rail(context: dict[str, Any]) -> Rail:
    """The first page of the person's list, or what `?q=` finds; the session of the page is marked."""
    session = context.get("session")
    asked = SidebarQuery.of_page(context["request"], current=session.pk if isinstance(session, Session) else None)
    return rail_of(context["request"].user, asked)
