"""Routing rules of the PARLEY_PROVIDERS file: model name or prefix to targets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`model` empty: the name that the caller used. `weight` 0: only when nobody else answers."""

    provider: str
    model: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`model` ends in * where it is only a beginning."""

    model: str
    targets: tuple[Target, ...]

    def matches(self, model: str) -> bool:
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return model == self.model
