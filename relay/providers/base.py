"""Providers and models: the `Provider` protocol, without the database."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from history.answers.events import Event
from history.context import Context
from history.dialects import CallOptions, Loss, Switches
from history.entries import nothing
from relay.errors import ProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model as people pick it. `window` 0: unknown. `context_tokens`: tell it no more, whatever it can.

    `can_summarise`: older turns are summarised by it; otherwise they are left out when the context is full.
    """

    name: str
    label: str = ""
    window: int = 0
    context_tokens: int | None = None
    takes_tools: bool = True
    takes_images: bool = True
    can_summarise: bool = True
    switches: Switches | None = None

    @property
    def shown(self) -> str:
        return self.label or self.name


@dataclass(slots=True, kw_only=True)
class CallNotes:
    """What became of a call, for whoever stores it: filled in while the call goes on.

    `supplied` are options that had to be told and that nobody had said. `request_hash` is of the body that was sent,
    `request_id` the vendor's name for the call if a header gave one. `on_retry` is called before a
    wait with the error and the seconds until the next attempt.
    """

    attempts: int = 0
    losses: tuple[Loss, ...] = ()
    supplied: Mapping[str, Any] = field(default_factory=nothing)
    request_hash: str = ""
    request_id: str = ""
    on_retry: Callable[[ProviderError, float], None] | None = None


class Provider(Protocol):
    """`name` is stored with every answer and says whose signed reasoning may go back; `dialect` is one of DIALECTS."""

    @property
    def name(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def dialect(self) -> str: ...

    @property
    def is_demo(self) -> bool: ...

    @property
    def models(self) -> tuple[Model, ...]:
        """What it offers, the one to begin with first."""
        ...

    def call(
        self, context: Context, options: CallOptions, *, notes: CallNotes | None = None
    ) -> AsyncGenerator[Event, None]:
        """Ask, and give the answer's events as they come. Closing the generator ends the call.

        Raises a `relay.errors.ProviderError`: before the first event after retries, or in the middle of an answer. An
        answer whose generator ends without an error was ended by the vendor.
        """
        ...


@dataclass(frozen=True, slots=True)
class Route:
    """Who is called, and as what."""

    provider: Provider
    model: Model

    @property
    def name(self) -> str:
        """As people write it: provider/model."""
        return f"{self.provider.name}/{self.model.name}"
