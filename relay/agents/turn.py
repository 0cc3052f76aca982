"""One turn of an agent as its parts know it: what is to be answered, who is told, what was said, how it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from uuid import UUID

from django.conf import settings

from history.answers.assembly import Assembler
from history.answers.events import Event
from history.entries import ModelOutput, ToolRequest, ToolResult
from relay.agents.budgets import TurnBudget
from relay.agents.requests import Prepared
from relay.agents.settings import AgentSettings, RoleName
from relay.errors import ProviderError
from relay.models import Run

# Stands for what the agent's limit says; another one is given to an agent that is called by another.
ITS_OWN = TurnBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRequest:
    """That older turns be summarised: `why`, by which model, and the number of a summary that it is to replace."""

    why: Literal["full", "too_long", "asked", "tool", "again"]
    model: str = ""
    instead_of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is to be answered: the entry `leaf` of a session, by an agent, on behalf of its owner.

    `answers` are a person's words for open calls of `ask_user`, by call id; `client` says who was connected from where;
    `above` are the sessions of those who called this agent, the person's own first. With a `wish` nothing is answered,
    only summarised.
    """

    session_id: UUID
    user: Any
    leaf: int
    agent: AgentSettings
    model: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    wish: CompressionRequest | None = None
    above: tuple[UUID, ...] = ()
    budget: TurnBudget = ITS_OWN

    def __post_init__(self) -> None:
        if self.budget is ITS_OWN:
            whole = TurnBudget(tokens=self.agent.max_turn_tokens, calls=settings.PARLEY_AGENT_CALLS)
            object.__setattr__(self, "budget", whole)


class Watcher(Protocol):
    """Who is told how a turn goes; `stop_reason` says why it was cancelled, if it was."""

    id: UUID

    @property
    def stop_reason(self) -> str: ...

    async def opened(self, prepared: Prepared, assembler: Assembler, *, role: RoleName) -> None: ...

    def retrying(self, error: ProviderError, seconds: float) -> None:
        """The provider is called again in so many seconds."""
        ...

    def fed(self, event: Event) -> None: ...

    async def stored(self, *, leaf: int) -> None: ...

    async def summarising(self, *, is_on: bool) -> None: ...

    async def calling(self, *, seq: int, requests: Sequence[ToolRequest]) -> None: ...

    async def answer_below(self, turn: Turn) -> Run:
        """Answer another turn for this one, and wait for its end; whatever ends this one ends that one, too."""
        ...

    def result(self, *, seq: int, index: int, result: ToolResult) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One stored answer: where it stands, and what it was."""

    seq: int
    output: ModelOutput


class TurnFailed(Exception):
    """The turn ended with an error that is stored with its answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error
