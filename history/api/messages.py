"""`/api/history/sessions/<id>/messages`: what was said, in pages in both directions, and one entry whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from history.api.access import open_session
from history.api.answers import MessagesAnswer, WholeMessageAnswer
from history.api.errors import NoSuchThing
from history.api.etags import is_known, tag_of, tagged, unchanged
from history.api.fields import LARGEST
from history.api.pagination import message_link
from history.api.query import MessagesAsked, OneAsked
from history.api.schema import documented
from history.api.views import ApiView
from history.db.packing import MissingBlob, clean_deep
from history.entries import Gap, ModelInput, ModelOutput, Summary, SystemInstructionSet, entry_to_json
from history.models import Message, Session, ToolCall
from history.record.selectors import Page, entries_of, messages_of

# A conversation as one reads it: results stand with the calls that they answer.
TOLD = frozenset(kind.kind for kind in (ModelInput, ModelOutput, SystemInstructionSet, Summary, Gap))


class MessageListView(ApiView):
    @documented(
        "read_messages",
        "Read messages",
        MessagesAnswer,
        asked=MessagesAsked,
        path=("session_id",),
        has_tag=True,
        description="The newest messages of a session, or those next to one in either direction. "
        "The ETag is made of the session's version: asking again for what did not change costs next to nothing.",
    )
    def get(self, request: Request, session_id: str) -> Response:
        asked = MessagesAsked.of(request)
        session = open_session(request, session_id)
        where = {name: asked[name] for name in ("before", "after", "leaf", "limit")}
        thinned = (session.trimmed_through, session.dropped_through)
        tag = tag_of(session.pk, session.version, *thinned, *where.values(), asked["all"])
        if is_known(request, tag):
            return unchanged(tag)
        if asked["leaf"] and not Message.objects.at(session, asked["leaf"]).exists():
            raise NoSuchThing
        is_range = asked["before"] is not None and asked["after"] is not None
        page = _between(session, where) if is_range else messages_of(session, **where)
        return Response(_told(request, session, page, everything=asked["all"]), headers={"ETag": tag})


def _between(session: Session, where: dict[str, Any]) -> Page:
    """Entries after one and before another, oldest first."""
    page = messages_of(session, **{**where, "before": None})
    messages = [message for message in page.messages if message.seq < where["before"]]
    is_cut = len(messages) < len(page.messages)
    return replace(page, messages=messages, has_newer=page.has_newer and not is_cut)


def _told(request: Request, session: Session, page: Page, *, everything: bool) -> dict[str, Any]:
    shown = [message for message in page.messages if everything or message.kind in TOLD]
    told = {
        "session_id": session.pk,
        "message_count": session.message_count,
        "version": session.version,
        "head": session.head,
        "next": message_link(request, after=page.messages[-1].seq if page.messages and page.has_newer else None),
        "previous": message_link(request, before=page.messages[0].seq if page.messages and page.has_older else None),
        "results": shown,
    }
    return dict(MessagesAnswer(told, context={"calls": _calls_of(shown)}).data)


def _calls_of(messages: list[Message]) -> dict[int, list[ToolCall]]:
    asked: dict[int, list[ToolCall]] = {}
    for call in ToolCall.objects.filter(message__in=[message.pk for message in messages]).order_by("message", "index"):
        asked.setdefault(call.message_id, []).append(call)
    return asked


class OneMessage(ApiView):
    @documented(
        "read_message",
        "Read one message whole",
        WholeMessageAnswer,
        asked=OneAsked,
        path=("session_id", "seq"),
        has_tag=True,
        description="However long it is, with everything that is stored of it: parts, reasoning, attachments by hash.",
    )
    def get(self, request: Request, session_id: str, seq: int) -> Response:
        OneAsked.of(request)
        session = open_session(request, session_id)
        message = Message.objects.at(session, min(seq, LARGEST)).first()
        if message is None:
            raise NoSuchThing
        context = {"calls": _calls_of([message]), "entry": _entry(message)}
        return tagged(request, WholeMessageAnswer(message, context=context).data)


def _entry(message: Message) -> dict[str, Any] | None:
    try:
        told: dict[str, Any] = clean_deep(entry_to_json(entries_of([message])[0]))
    except MissingBlob:
        return None
    return told
