"""A context as one model can take it: pictures in a conversation that began with another model are named, not shown."""

from __future__ import annotations

from dataclasses import replace

from history.context import Context
from history.context_entries import ContextEntry
from history.entries import Media, Part, Text
from relay.providers.base import Model


def fitted(context: Context, model: Model) -> Context:
    """The same object where the model takes pictures."""
    return context if model.takes_images else replace(context, entries=tuple(map(_without_pictures, context.entries)))


def _without_pictures(entry: ContextEntry) -> ContextEntry:
    results = tuple(replace(result, parts=tuple(map(_named, result.parts))) for result in entry.results)
    return replace(entry, parts=tuple(map(_named, entry.parts)), results=results)


def _named(part: Part) -> Part:
    if not isinstance(part, Media) or not part.media_type.startswith("image/"):
        return part
    return Text(text=f"[A picture that this model cannot see: {part.name or part.media_type}]")
