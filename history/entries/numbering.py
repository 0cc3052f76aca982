"""What became of the numbers of a path in a copy of it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Numbering:
    """Old numbers and new ones. They are added in order, so a long path costs no more than its length."""

    def __init__(self) -> None:
        self._old: list[int] = []
        self._new: list[int] = []

    def add(self, old: int, new: int) -> None:
        self._old.append(old)
        self._new.append(new)

    @property
    def last(self) -> int:
        """The last that was added, by its old number; 0: none yet."""
        return self._old[-1] if self._old else 0

    def of(self, number: int) -> int:
        """The new number of this entry; 0: it is not in the copy."""
        return self.span(number, number)[0]

    def span(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last entry of the copy that come from this range; (0, 0): there is none."""
        start, end = bisect_left(self._old, first), bisect_right(self._old, last) - 1
        return (self._new[start], self._new[end]) if first > 0 and start <= end else (0, 0)
