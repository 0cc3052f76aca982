"""Amounts of use: requests, tokens and cost, added up for limits and budgets."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple


class Use(NamedTuple):
    """A tuple, because it is added up several times in every call."""

    requests: int = 0
    tokens: int = 0
    cost: Decimal = Decimal(0)

    def __add__(self, other: Use) -> Use:  # type: ignore[override]
        return Use(self.requests + other.requests, self.tokens + other.tokens, self.cost + other.cost)

    def __bool__(self) -> bool:
        return bool(self.requests or self.tokens or self.cost)


NO_USE = Use()
