"""A turn of an agent: its input, its observer, its stored answers and its failure."""

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
from relay.agents.requests import PreparedCall
from relay.agents.settings import AgentSettings, RoleName
from relay.errors import ProviderError
from relay.models import Run

# Stands for a budget from the limits of the agent. A called agent gets a part of its caller's budget instead.
OWN_BUDGET = TurnBudget()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRequest:
    """A request to summarise older turns: `why`, by which model, and the summary that it replaces."""

    why: Literal["full", "too_long", "asked", "tool", "again"]
    model: str = ""
    instead_of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is to be answered: the entry `leaf` of a session, by an agent, on behalf of its owner.

    `answers` are the user's answers to open calls of `ask_user`, by call id; `client` is the address of the connection;
    `callers` are the sessions of the agents that called this one, the user's own first. With `compression` nothing is
    answered: older turns are summarised.
    """

    session_id: UUID
    user: Any
    leaf: int
    agent: AgentSettings
    model: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    compression: CompressionRequest | None = None
    callers: tuple[UUID, ...] = ()
    budget: TurnBudget = OWN_BUDGET

    def __post_init__(self) -> None:
        if self.budget is OWN_BUDGET:
            whole = TurnBudget(tokens=self.agent.max_turn_tokens, calls=settings.PARLEY_AGENT_CALLS)
            object.__setattr__(self, "budget", whole)


class TurnObserver(Protocol):
    """The run of a turn, which is notified of every step. `stop_reason` says why the turn was cancelled."""

    id: UUID

    @property
    def stop_reason(self) -> str: ...

    async def on_call(self, prepared: PreparedCall, assembler: Assembler, *, role: RoleName) -> None: ...

    def on_retry(self, error: ProviderError, seconds: float) -> None:
        """The provider is called again in so many seconds."""
        ...

    def on_event(self, event: Event) -> None: ...

    async def on_stored(self, *, leaf: int) -> None: ...

    async def on_summarising(self, *, is_on: bool) -> None: ...

    async def on_tool_calls(self, *, seq: int, requests: Sequence[ToolRequest]) -> None: ...

    def on_tool_result(self, *, seq: int, index: int, result: ToolResult) -> None: ...

    async def run_subagent(self, turn: Turn) -> Run:
        """Run the turn of another agent and wait for its end. If this run is stopped, so is that one."""
        ...


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer and its entry."""

    seq: int
    output: ModelOutput


class TurnFailed(Exception):
    """The turn ended with an error that is stored with its answer."""

    def __init__(self, error: ProviderError) -> None:
        super().__init__(str(error))
        self.error = error
