"""A relay without a network: calls are written to a real journal as the gateway would, and digested.

A `Program` talks like a client of one vendor: it keeps its own conversation and sends all of it each time, with the
headers that it has. What the model answers is said by the test and written as the vendor would send it.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from django.db import connection, connections

from history import retention
from history.answers.events import AnswerEnded as AnswerEnded
from history.dialects import DIALECTS
from history.entries import ModelOutput, Part, Text, ToolRequest, Usage
from history.models import ApiKey, Exchange, Message, Session
from relay.digest.digester import Digester
from relay.gateway.call.session_ids import read_session
from relay.gateway.journal.records import Attempt, CallAccepted, CallEnded
from relay.gateway.journal.writer import Journal
from tests.factories import without_guards
from tests.history.dialects.samples import events_of

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
USAGE = Usage(input_tokens=20, output_tokens=5)


def model_answer(text: str = "", *calls: ToolRequest, usage: Usage | None = USAGE) -> ModelOutput:
    parts: tuple[Part, ...] = (*([Text(text=text)] if text else []), *calls)
    return ModelOutput(
        parts=parts, usage=usage, model="model-1", end_reason="tool_use" if calls else "stop", status="complete"
    )


def call(name: str, call_id: str, **arguments: Any) -> ToolRequest:
    return ToolRequest(call_id=call_id, name=name, arguments=json.dumps(arguments))


def half_bytes(dialect: str, output: ModelOutput) -> bytes:
    """A stream that breaks off before it says that it ends."""
    encoder = DIALECTS[dialect].stream_encoder(model="model-1", reply_id="reply-1")
    return b"".join(encoder.feed(event) for event in events_of(output) if not isinstance(event, AnswerEnded))


def reply_bytes(dialect: str, output: ModelOutput, *, stream: bool, reply_id: str = "reply-1") -> bytes:
    if not stream:
        return json.dumps(DIALECTS[dialect].encode_reply(output, reply_id=reply_id)).encode()
    encoder = DIALECTS[dialect].stream_encoder(model=output.model or "model-1", reply_id=reply_id)
    return b"".join(encoder.feed(event) for event in events_of(output)) + encoder.end()


class Relay:
    """The gateway's side: `send` gives the exchange, `answer` and `end` finish it, `digest` makes history of it."""

    def __init__(self, folder: Path, key: ApiKey, *, name: str = "test") -> None:
        self.folder, self.key, self.name = folder, key, name
        self.journal = Journal(folder)
        self.digester = Digester(folder, name=name, end_wait=0)
        self._dialects: dict[UUID, tuple[str, bool]] = {}

    def send(
        self,
        dialect: str,
        body: Mapping[str, Any] | bytes,
        headers: Mapping[str, str] | None = None,
        *,
        key: ApiKey | None = None,
        kind: Any = "chat",
        path: str = "/v1/messages",
        at: float | None = None,
        upstream: str = "",
    ) -> UUID:
        key, exchange, sent = key or self.key, uuid4(), dict(headers or {})
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {} if isinstance(body, bytes) else body
        naming = read_session({name.lower(): value for name, value in sent.items()}, fields, key=key.pk)
        stream = bool(fields.get("stream")) or "stream" in path
        self._dialects[exchange] = (upstream or dialect, stream)
        self.journal.accept(
            CallAccepted(
                exchange=exchange,
                at=at or time.time(),
                key=key.pk,
                owner=key.owner_id,
                recording=key.recording,
                dialect=dialect,
                kind=kind,
                path=path,
                headers=list(sent.items()),
                body_size=len(raw),
                provider="vendor",
                model=str(fields.get("model") or _model_in(path)),
                stream=stream,
                session=naming.session,
                recognised_by=naming.recognised_by,
                new_session=naming.is_new,
                upstream_dialect=upstream or dialect,
            ),
            raw,
        )
        return exchange

    def answer(self, exchange: UUID, output: ModelOutput, *, reply_id: str = "reply-1", **ending: Any) -> None:
        dialect, stream = self._dialects[exchange]
        self.journal.reply(exchange, reply_bytes(dialect, output, stream=stream, reply_id=reply_id))
        self.end(exchange, **ending)

    def end(self, exchange: UUID, reason: str = "done", *, status: int = 200, **fields: Any) -> None:
        attempts = fields.pop("attempts", [Attempt("vendor", status, 0.1)])
        self.journal.end(
            CallEnded(
                exchange=exchange,
                at=fields.pop("at", time.time()),
                reason=reason,
                status=status,
                attempts=attempts,
                **fields,
            )
        )

    def fail(self, exchange: UUID, status: int, body: bytes, **fields: Any) -> None:
        self.journal.reply(exchange, body)
        self.end(exchange, "upstream_error", status=status, **fields)

    def digest(self) -> None:
        """Until nothing more can be filed without new records."""
        for _ in range(4):
            self.digester.step()

    def digest_later(self) -> None:
        """After so long that no call waits for another any more."""
        for call in self.digester.pending.values():
            call.seen_at -= 60
        self.digest()

    def reborn(self) -> None:
        """Another digester takes over, which knows only what is on disk and in the database."""
        self.digester = Digester(self.folder, name=self.name, end_wait=0)

    def relay_call(
        self, dialect: str, body: Mapping[str, Any], output: ModelOutput, headers: Any = None, **how: Any
    ) -> UUID:
        reply_id = how.pop("reply_id", "reply-1")
        exchange = self.send(dialect, body, headers, **how)
        self.answer(exchange, output, reply_id=reply_id)
        self.digest()
        return exchange


def _model_in(path: str) -> str:
    """Gemini's clients name it there."""
    found = re.search(r"/models/([^:]+):", path)
    return found[1] if found else "model-1"


def path_of(session: Session) -> list[str]:
    """What a reader sees of it, kind by kind: a letter for who speaks, and the text."""
    letters = {"model_input": "u", "model_output": "a", "tool_results": "t"}
    rows = Message.objects.filter(session=session, on_path=True, is_internal=False, kind__in=letters).order_by("seq")
    return [f"{letters[row.kind]}:{_REMINDER.sub('', row.content).strip()}" for row in rows]


def sessions() -> list[Session]:
    return list(Session.objects.order_by("created_at", "pk"))


def erase(title: str) -> None:
    """As its owner does it."""
    retention.erase(Session.objects.get(title=title), actor=None, reason="asked to")


def exchange_of(pk: UUID) -> Exchange:
    return Exchange.objects.get(pk=pk)


def remove_everything() -> None:
    """Between the examples of a property, which share a database."""
    without_guards(Exchange.objects.all()).delete()
    without_guards(Message.objects.all()).delete()
    without_guards(Session.objects.all()).delete()


@contextmanager
def database_away() -> Iterator[None]:
    """Refuse new database connections; transactional tests only."""
    name = connection.settings_dict["NAME"]
    connections.close_all()
    connection.settings_dict["NAME"] = "/nowhere/at-all" if connection.vendor == "sqlite" else "nowhere_at_all"
    try:
        yield
    finally:
        connections.close_all()
        connection.settings_dict["NAME"] = name
