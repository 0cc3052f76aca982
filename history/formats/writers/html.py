"""HTML export: one self-contained page without scripts, with inline images."""

import base64
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from django.conf import settings
from django.template.loader import render_to_string

from history.db.packing import clean
from history.entries import JsonDict, Media, ModelInput, ModelOutput, Part, Reasoning, Text, ToolResults
from history.formats.base import Notes
from history.formats.writers import path
from history.models import Session
from history.record.loading import bytes_of
from history.text.lazy import gettext_noop as _
from history.text.media_types import IMAGES, media_type_of
from history.transcripts import previews

LARGEST_PICTURE = 5_000_000
STYLES = ("tokens.css", "components/prose.css", "pages/export.css")


def write(session: Session, notes: Notes) -> Iterator[bytes]:
    yield _render("head", session=session, styles=_styles())
    for exported in path.entries_on_path(session, notes, with_unrecorded=True):
        yield _render("entry", **_entry_context(exported, notes))
    yield _render("tail")


def _render(name: str, **context: object) -> bytes:
    return render_to_string(f"history/export/{name}.html", context).encode()


@cache
def _styles() -> str:
    folder = Path(settings.BASE_DIR) / "static" / "css"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in STYLES)


def _entry_context(exported: path.ExportedEntry, notes: Notes) -> JsonDict:
    entry, place = exported.entry, exported.place
    for call in exported.calls:
        lost = sum(isinstance(part, Media) for part in call.result.parts) if call.result else 0
        notes("lost", _("pictures in results of tools"), where=place, count=lost)
    text = "" if isinstance(entry, ModelInput | ModelOutput | ToolResults) else clean(entry.text)
    return {
        "exported": exported,
        "entry": entry,
        "speaker": clean(path.speaker_name(entry)),
        "parts": [_part(part, notes, place) for part in entry.parts],
        "results": entry.results,
        "text": previews.unrecorded_text() if previews.is_unrecorded(entry) else text,
    }


def _part(part: Part, notes: Notes, place: str) -> JsonDict:
    if isinstance(part, Text | Reasoning):
        return {"kind": part.type, "text": clean(part.text)}
    if isinstance(part, Media):
        source = _picture(part)
        notes("lost", _("attachments other than pictures: only their names"), where=place, count=int(not source))
        return {"kind": "media", "name": clean(part.name), "media_type": part.media_type, "source": source}
    return {"kind": "other"}


def _picture(part: Media) -> str:
    """The image as a data URL; empty if the bytes are not an image."""
    try:
        content = bytes_of(part.sha256) if part.sha256 else b""
    except LookupError:
        return ""
    kind = media_type_of(content, name=part.name) if content else None
    if kind not in IMAGES or len(content) > LARGEST_PICTURE:
        return ""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
