"""What a writer can choose from: who answers, by which model, and the commands that need neither."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext as _

from history.models import Session
from relay.models import Agent
from relay.providers.base import Provider
from relay.providers.registry import router


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str
    is_picked: bool = False


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices under one heading; without one they stand by themselves."""

    label: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pickers:
    agents: tuple[Choice, ...]
    models: tuple[Choices, ...]


def pickers_for(session: Session | None, *, agent: str = "", model: str = "") -> Pickers:
    """What was picked last in this session is picked again."""
    if session is not None:
        agent, model = agent or session.agent, model or str(session.metadata.get("model", ""))
    return Pickers(agents=tuple(_agents(agent)), models=tuple(_models(model)))


def _agents(picked: str) -> list[Choice]:
    rows = list(Agent.objects.order_by("-is_default", "name"))
    names = [row.name for row in rows]
    picked = picked if picked in names else next(iter(names), "")
    return [Choice(row.name, str(row), row.name == picked) for row in rows]


def _models(picked: str) -> list[Choices]:
    """The first is what an agent without a model of its own gets; it may change when the server's set-up does."""
    groups = [
        Choices(
            _words(group.provider.label or group.provider.name, group.provider),
            tuple(
                Choice(route.name, _words(route.model.shown, group.provider), route.name == picked)
                for route in group.routes
            ),
        )
        for group in router().choices()
    ]
    is_known = any(choice.is_picked for group in groups for choice in group.choices)
    first = next((choice.label for group in groups for choice in group.choices), "")
    label = _("%(model)s (automatic)") % {"model": first} if first else _("No model")
    return [Choices("", (Choice("", label, not is_known),)), *groups]


def _words(label: str, provider: Provider) -> str:
    """A vendor's names are its own; what we call the model that we bring along is a word of ours."""
    return _(label) if provider.is_demo else label
