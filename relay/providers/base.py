"""Models, routing rules and notes of calls, and requests without images for models without vision."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from history.context.values import Context, ContextEntry
from history.dialects import Loss, Switches
from history.entries import Media, Part, Text, empty_object
from relay.errors import ProviderError


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A `window` of 0 means unknown; `context_tokens` limits its input further.

    A model that cannot summarise older turns (`can_summarise`) loses them when the context is full.
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
    """Facts about a call, filled in while it runs."""

    attempts: int = 0
    losses: tuple[Loss, ...] = ()
    supplied: Mapping[str, Any] = field(default_factory=empty_object)  # required options that the request did not have
    request_hash: str = ""  # of the body
    request_id: str = ""  # the vendor's, if a header has one
    # Called before a wait, with the error and the seconds until the next attempt.
    on_retry: Callable[[ProviderError, float], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An empty `model` means the name in the request. A `weight` of 0: only if no other target answers."""

    provider: str
    model: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    model: str
    targets: tuple[Target, ...]

    def matches(self, model: str) -> bool:
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return model == self.model


def without_unsupported_images(context: Context, model: Model) -> Context:
    """The same object if the model takes images; else with their names in their place."""
    return context if model.takes_images else replace(context, entries=tuple(map(_without_images, context.entries)))


def images_in(context: Context) -> list[Media]:
    parts = [part for entry in context.entries for part in entry.parts]
    parts += [part for entry in context.entries for result in entry.results for part in result.parts]
    return [part for part in parts if _is_image(part)]


def _is_image(part: Part) -> TypeGuard[Media]:
    return isinstance(part, Media) and part.media_type.startswith("image/")


def _without_images(entry: ContextEntry) -> ContextEntry:
    results = tuple(replace(result, parts=tuple(map(_name_image, result.parts))) for result in entry.results)
    return replace(entry, parts=tuple(map(_name_image, entry.parts)), results=results)


def _name_image(part: Part) -> Part:
    if not _is_image(part):
        return part
    return Text(text=f"[A picture that this model cannot see: {part.name or part.media_type}]")
