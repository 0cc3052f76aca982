"""Exports as request bodies for OpenAI, Anthropic and Gemini, and as ShareGPT.

Summaries do not replace what they summarise here: a sender can cut a request, but not bring back what was left out.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from history.context.rendering import render_context
from history.context.values import Context, ContextEntry, ContextOptions, Role
from history.dialects import DIALECTS, CallOptions
from history.entries import JsonDict, Retracted, Summary, text_of, thaw
from history.formats.base import Notes
from history.formats.writers.path import note_beside, note_parts, to_json
from history.models import Session
from history.record.loading import bytes_of
from history.record.selectors import snapshot
from history.text.lazy import gettext_noop as _

ALL = ContextOptions(max_turns=None)


def write_openai(session: Session, notes: Notes) -> Iterator[bytes]:
    """A line for fine-tuning: messages and tools, and nothing else."""
    body = _body(session, "openai-chat", notes)
    line = {name: body[name] for name in ("messages", "tools") if body.get(name)}
    if line.get("messages"):
        yield f"{to_json(line)}\n".encode()


def _write_body(dialect: str, session: Session, notes: Notes) -> Iterator[bytes]:
    yield f"{to_json(_body(session, dialect, notes), indent=2)}\n".encode()


write_anthropic = partial(_write_body, "anthropic-messages")
write_gemini = partial(_write_body, "gemini-generate")


def write_sharegpt(session: Session, notes: Notes) -> Iterator[bytes]:
    """A line `{"conversations": [{"from": …, "value": …}]}`; calls are JSON inside a text."""
    context = context_of(session, notes)
    turns = [turn for entry in context.entries for turn in _turns(entry, notes, str(session.pk))]
    if not turns:
        return
    line: JsonDict = {"id": str(session.pk), "conversations": turns}
    if context.system:
        line["system"] = context.system
    if context.tools:
        line["tools"] = to_json(
            [
                {"name": tool.name, "description": tool.description, "parameters": thaw(tool.parameters)}
                for tool in context.tools
            ]
        )
    yield f"{to_json(line)}\n".encode()


def context_of(session: Session, notes: Notes) -> Context:
    """All turns, in full; what had to be repaired is noted."""
    note_beside(session, notes)
    taken = snapshot(session)
    spoken = tuple(node for node in taken.nodes if not isinstance(node.entry, Summary | Retracted))
    summaries = len(taken.nodes) - len(spoken)
    notes("ignored", _("summaries: the original messages are included in full"), count=summaries)
    context = render_context(replace(taken, nodes=spoken), ALL)
    for remark in context.report.remarks:
        notes("repaired", remark.text, where=str(session.pk))
    return context


def _body(session: Session, dialect: str, notes: Notes) -> JsonDict:
    options = CallOptions(model=session.model, media=bytes_of)
    encoded = DIALECTS[dialect].encode(context_of(session, notes), options)
    for loss in encoded.losses:
        notes("lost", loss.text, where=f"{session.pk} #{loss.seq}" if loss.seq else str(session.pk))
    return encoded.body


def _turns(entry: ContextEntry, notes: Notes, place: str) -> Iterator[dict[str, str]]:
    note_parts(tuple(entry.parts), notes, place)
    if entry.role is Role.TOOL_RESULT:
        outputs = [result.text or result.error for result in entry.results]
        yield {"from": "observation", "value": outputs[0] if len(outputs) == 1 else to_json(list(outputs))}
        return
    if text := text_of(entry.parts):
        yield {"from": {Role.MODEL_OUTPUT: "gpt", Role.SYSTEM: "system"}.get(entry.role, "human"), "value": text}
    if calls := [{"name": call.name, "arguments": call.arguments} for call in entry.tool_requests]:
        notes("lost", _("ids of calls"), where=place)
        yield {"from": "function_call", "value": to_json(calls[0] if len(calls) == 1 else calls)}
