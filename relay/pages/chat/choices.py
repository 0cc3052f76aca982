"""Choices of the composer: agents, models, and examples for a new chat."""

from collections.abc import Sequence
from typing import NamedTuple

from django.utils.translation import gettext as _

from history.models import Session
from relay.models import Agent
from relay.providers.http import HttpProvider
from relay.providers.registry import router


class Choice(NamedTuple):
    value: str
    label: str
    is_picked: bool = False


class Choices(NamedTuple):
    """Choices under one heading, or under none."""

    label: str
    choices: tuple[Choice, ...]


def pickers_for(session: Session | None, *, agent: str = "", model: str = "") -> dict[str, Sequence[Choice | Choices]]:
    """Preselect the agent and model that the session used last."""
    if session is not None:
        agent, model = agent or session.agent, model or str(session.metadata.get("model", ""))
    agents = Agent.objects.order_by("-is_default", "name")
    names = [row.name for row in agents]
    picked = agent if agent in names else next(iter(names), "")
    return {"agents": [Choice(row.name, str(row), row.name == picked) for row in agents], "models": _models(model)}


def _models(picked: str) -> list[Choices]:
    """The first choice is the default of the router. It changes with the configuration of the server."""
    groups = []
    for group in router().choices():
        provider = group.provider
        choices = [Choice(one.name, _label(one.model.shown, provider), one.name == picked) for one in group.routes]
        groups.append(Choices(_label(provider.label or provider.name, provider), tuple(choices)))
    known = [choice for group in groups for choice in group.choices]
    label = _("%(model)s (automatic)") % {"model": known[0].label} if known else _("No model")
    return [Choices("", (Choice("", label, not any(choice.is_picked for choice in known)),)), *groups]


def _label(label: str, provider: HttpProvider) -> str:
    """Only the label of the demo model is translated: names of providers are their own."""
    return _(label) if provider.is_demo else label


def examples() -> list[tuple[str, str]]:
    """What may be sent first, and what it does."""
    return [
        (_("Write a haiku about a quiet library."), _("Asks the model selected below.")),
        ("/sys_monitor cpu", _("Shows how busy this server is, without a model.")),
        ("/help", _("Commands without a model")),
    ]
