"""What a played vendor does with one request: answer in pieces, slowly, in part, wrongly, or with an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from history.answers.events import (
    AnswerEnded,
    AnswerFailed,
    AnswerStarted,
    EndReason,
    ErrorKind,
    Event,
    ReasoningPiece,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.entries import Usage

USAGE = Usage(input_tokens=12, output_tokens=5)


@dataclass(frozen=True, kw_only=True)
class Play:
    """`wait`: before anything; `delay`: after each piece; `linger`: before the end; all in seconds.

    `cut_at`: the connection breaks after so many bytes of the answer. `body`: these bytes instead of `events`.
    `noise`: comments, pings and unknown events in between, as vendors send them.
    """

    events: tuple[Event, ...] = ()
    wait: float = 0.0
    delay: float = 0.0
    linger: float = 0.0
    cut_at: int | None = None
    body: bytes | None = None
    status: int = 200
    failed: AnswerFailed | None = None
    content_type: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    noise: bool = False


def says(*pieces: str, reason: EndReason = "stop", usage: Usage | None = USAGE) -> Play:
    """A text, in these pieces."""
    return _answer([TextPiece(part="text", text=piece) for piece in pieces], reason, usage)


def asks(*calls: tuple[str, str, str], text: str = "", usage: Usage | None = USAGE) -> Play:
    """Calls of tools, each an id, a name and the JSON of its arguments, after a text if there is one."""
    pieces: list[Event] = [TextPiece(part="text", text=text)] if text else []
    for place, (call_id, name, arguments) in enumerate(calls):
        middle = len(arguments) // 2
        pieces.append(ToolCallPiece(part=f"call-{place}", call_id=call_id, name=name))
        pieces += [
            ToolCallPiece(part=f"call-{place}", arguments=half) for half in (arguments[:middle], arguments[middle:])
        ]
    return _answer(pieces, "tool_use", usage)


def thinks(thought: str, signature: str, *then: Event, reason: EndReason = "stop") -> Play:
    """Signed thinking, and what it led to."""
    thinking = [ReasoningPiece(part="thinking", text=thought), ReasoningPiece(part="thinking", signature=signature)]
    return _answer([*thinking, *then], reason, USAGE)


def refuses(kind: ErrorKind, message: str = "", *, status: int = 0, headers: Mapping[str, str] | None = None) -> Play:
    """An error in the format of the requested dialect; `status` 0 means the status of the kind."""
    return Play(
        failed=AnswerFailed(message=message or f"played: {kind}", kind=kind), status=status, headers=headers or {}
    )


def raw(body: bytes, *, content_type: str = "", status: int = 200) -> Play:
    return Play(body=body, content_type=content_type, status=status)


def _answer(pieces: Sequence[Event], reason: EndReason, usage: Usage | None) -> Play:
    counted = [UsageReported(usage=usage)] if usage else []
    return Play(events=(AnswerStarted(model="", request_id=""), *pieces, *counted, AnswerEnded(reason=reason)))
