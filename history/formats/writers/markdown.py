"""Markdown export of a conversation with its tool calls and results."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress

from django.utils.translation import gettext as _

from history.db.packing import clean
from history.entries import Media, ModelInput, ModelOutput, Part, Reasoning, Text, ToolResults
from history.formats.base import Notes
from history.formats.writers import path
from history.models import Session
from history.text.lazy import gettext_noop
from history.transcripts import previews

FENCES = re.compile(r"`{3,}")


def write(session: Session, notes: Notes) -> Iterator[bytes]:
    yield clean(_head(session)).encode()
    for exported in path.entries_on_path(session, notes, with_unrecorded=True):
        yield clean(_entry(exported, notes)).encode()


def _head(session: Session) -> str:
    title = " ".join(session.title.split()) or str(session.pk)
    facts = {
        _("Session"): f"`{session.pk}`",
        _("Owner"): session.owner.get_username(),
        _("Begun"): f"{session.created_at:%Y-%m-%d %H:%M} UTC",
        _("Model"): session.model,
        _("Agent"): session.agent,
    }
    return f"# {title}\n\n" + "".join(f"- {name}: {fact}\n" for name, fact in facts.items() if fact)


def _entry(exported: path.ExportedEntry, notes: Notes) -> str:
    entry, place = exported.entry, exported.place
    head = f"\n## {path.speaker_name(entry)} · {entry.at:%Y-%m-%d %H:%M:%S}\n"
    if isinstance(entry, ModelInput | ModelOutput):
        blocks = [_part(part, notes, place) for part in entry.parts]
        blocks += [_call(call, notes, place) for call in exported.calls]
        if previews.is_unrecorded(entry):
            blocks.insert(0, f"*{previews.unrecorded_text()}*")
        if isinstance(entry, ModelOutput) and entry.status != "complete":
            blocks.append(f"*{entry.status}: {entry.error or entry.end_reason}*")
        return "\n".join([head, *(f"{text}\n" for text in blocks if text)])
    if isinstance(entry, ToolResults):
        blocks = [fenced(result.text or result.error) for result in entry.results]
        return "\n".join([head, *blocks]) + "\n"
    if not entry.text:
        path.note_kind(entry, notes, place)
        return ""
    return f"{head}\n{entry.text}\n"


def _part(part: Part, notes: Notes, place: str) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Reasoning):
        path.note_signature(part, notes, place)
        return "\n".join(f"> {line}" for line in part.text.splitlines())
    if isinstance(part, Media):
        notes("lost", gettext_noop("data of attachments: only their names"), where=place, count=int(not part.url))
        return f"📎 {part.name or part.url or part.sha256} ({part.media_type})"
    return ""


def _call(call: path.ExportedCall, notes: Notes, place: str) -> str:
    arguments = call.request.arguments
    with suppress(ValueError, RecursionError):
        arguments = json.dumps(json.loads(arguments or "{}"), ensure_ascii=False, indent=2)
    blocks = [f"**🔧 {call.request.name}** – {call.status}", fenced(arguments, "json")]
    if call.result is not None:
        lost = sum(isinstance(part, Media) for part in call.result.parts)
        notes("lost", gettext_noop("data of attachments: only their names"), where=place, count=lost)
        blocks.append(fenced(call.outcome))
    return "\n\n".join(blocks)


def fenced(text: str, language: str = "") -> str:
    """A block that no line of the text can end."""
    longest = max((len(run) for run in FENCES.findall(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
