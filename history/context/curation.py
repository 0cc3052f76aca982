"""What is fit to be sent: known roles, calls beside their results, answers that say something."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from history.context.entries import ContextEntry, Role
from history.context.repair import Code, Remark, find_unpaired
from history.entries import OtherPart, Text


class InvalidContextError(ValueError):
    """These entries must not be sent; the text says which and why."""


def validate(entries: Sequence[ContextEntry]) -> None:
    """Raise :class:`InvalidContextError` where a role is unknown or a call and its results are not side by side."""
    for entry in entries:
        if entry.role not in tuple(Role):
            raise InvalidContextError(f"Role must be one of {', '.join(Role)}, but got {entry.role}.")
    if problems := find_unpaired(entries):
        raise InvalidContextError("; ".join(problems))


def curate(entries: Sequence[ContextEntry], *, remarks: list[Remark] | None = None) -> tuple[ContextEntry, ...]:
    """Keep what was said to the model; keep its answers in a row if all of them are valid, else none of them.

    This may leave a result without its call: repair afterwards.
    """
    kept: list[ContextEntry] = []
    for is_output, group in groupby(entries, key=lambda entry: entry.role is Role.MODEL_OUTPUT):
        run = list(group)
        if not is_output or all(is_valid(entry) for entry in run):
            kept.extend(run)
        elif remarks is not None:
            values = {"count": len(run)}
            remarks.append(Remark(code=Code.INVALID_ANSWERS_LEFT_OUT, seq=run[0].seq, values=values))
    return tuple(kept)


def is_valid(entry: ContextEntry) -> bool:
    """Whether an answer has parts, none of them hollow. Reasoning may be without text: its signature counts."""
    return bool(entry.parts) and not any(
        (isinstance(part, Text) and part.text == "") or (isinstance(part, OtherPart) and not part.data)
        for part in entry.parts
    )
