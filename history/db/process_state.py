"""Objects of which a process has one: caches, counters, open files.

A module keeps one in a class of its own (`process_state.find`, `process_state.keep`). Tests drop all of them at once.
"""

import threading
from typing import Any, TypeVar

T = TypeVar("T")


class ProcessState:
    def __init__(self) -> None:
        self._objects: dict[type, Any] = {}
        self._lock = threading.RLock()

    def get(self, kind: type[T]) -> T:
        """The object of this class, created on first use."""
        existing: T | None = self._objects.get(kind)
        if existing is not None:
            return existing
        with self._lock:
            existing = self.find(kind)
            if existing is None:
                existing = self._objects[kind] = kind()
            return existing

    def find(self, kind: type[T]) -> T | None:
        return self._objects.get(kind)

    def keep(self, value: T) -> T:
        """The object of this class: this one, unless another thread was first."""
        with self._lock:
            kept: T = self._objects.setdefault(type(value), value)
            return kept

    def set(self, value: object) -> None:
        self._objects[type(value)] = value

    def reset(self, *kinds: type) -> None:
        """Drop the objects of these classes, or all, and close those that have a method `close`."""
        with self._lock:
            dropped = [self._objects.pop(kind, None) for kind in kinds or tuple(self._objects)]
        for value in dropped:
            if close := getattr(value, "close", None):
                close()


process_state = ProcessState()
