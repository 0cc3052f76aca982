"""What one turn may use, together with every agent that is called in it: tokens, and calls of agents.

The agents of a tree run in one process, so a few numbers that they share are enough. What somebody uses counts for all
who stand above: each of them may have a limit of its own.
"""

from __future__ import annotations


class TurnBudget:
    def __init__(self, *, tokens: int | None = None, calls: int = 0, above: TurnBudget | None = None) -> None:
        """`tokens` None: no limit but that of those above; `calls` is for the whole tree, so it counts at its top."""
        self._tokens, self._calls, self._above = tokens, calls, above

    def below(self, *, tokens: int | None) -> TurnBudget:
        return TurnBudget(tokens=tokens, above=self)

    def spend(self, tokens: int) -> None:
        if self._tokens is not None:
            self._tokens -= tokens
        if self._above is not None:
            self._above.spend(tokens)

    @property
    def is_used_up(self) -> bool:
        own = self._tokens is not None and self._tokens <= 0
        return own or (self._above is not None and self._above.is_used_up)

    def take_call(self) -> bool:
        """Whether one more agent may be called; if so, it counts."""
        if self._above is not None:
            return self._above.take_call()
        self._calls -= 1
        return self._calls >= 0
