"""Image fallback: images are replaced by their names for models without vision."""

from __future__ import annotations

from dataclasses import replace

from history.context import Context
from history.context.entries import ContextEntry
from history.entries import Media, Part, Text
from relay.providers.base import Model


def without_unsupported_images(context: Context, model: Model) -> Context:
    """The same object where the model takes pictures."""
    return context if model.takes_images else replace(context, entries=tuple(map(_without_pictures, context.entries)))


def images_in(context: Context) -> list[Media]:
    said = [part for entry in context.entries for part in entry.parts]
    found = [part for entry in context.entries for result in entry.results for part in result.parts]
    return [part for part in (*said, *found) if isinstance(part, Media) and _is_picture(part)]


def _is_picture(media: Media) -> bool:
    return media.media_type.startswith("image/")


def _without_pictures(entry: ContextEntry) -> ContextEntry:
    results = tuple(replace(result, parts=tuple(map(_named, result.parts))) for result in entry.results)
    return replace(entry, parts=tuple(map(_named, entry.parts)), results=results)


def _named(part: Part) -> Part:
    if not isinstance(part, Media) or not _is_picture(part):
        return part
    return Text(text=f"[A picture that this model cannot see: {part.name or part.media_type}]")
