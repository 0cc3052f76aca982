"""REST: sessions and their messages, full-text search, tool calls across sessions, exchanges."""

from dataclasses import asdict
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from history.access import permissions, reasons
from history.access.permissions import Purpose
from history.api import base
from history.api.base import ApiView, open_session, page_link, reason_of, session_for, tagged, viewer_of
from history.api.errors import ResourceNotFound
from history.api.fields import LARGEST, format_cursor
from history.api.parameters import (
    MessageListParameters,
    ReasonParameters,
    SearchParameters,
    SessionChange,
    SessionListParameters,
    ToolCallListParameters,
    filters_in,
)
from history.api.schema import documented
from history.api.serializers import (
    ExchangeSerializer,
    MessagePageSerializer,
    SearchPageSerializer,
    SessionPageSerializer,
    SessionSerializer,
    ToolCallPageSerializer,
    WholeMessageSerializer,
)
from history.db.packing import MissingBlob, clean_deep
from history.entries import Gap, JsonObject, ModelInput, ModelOutput, Summary, SystemInstructionSet, entry_to_json
from history.models import EarlierTry, Exchange, Message, Session
from history.record.listing import list_calls, list_sessions
from history.record.selectors import Page, entries_of, messages_of
from history.search import facets, find_session_ids, named_facets, search
from history.sessions import actions
from history.transcripts.serializers import calls_by_message

# Kinds of messages that people read: tool results are part of their calls.
CONVERSATION = frozenset(kind.kind for kind in (ModelInput, ModelOutput, SystemInstructionSet, Summary, Gap))


class Sessions(ApiView):
    @documented("list_sessions", "List sessions", SessionPageSerializer, SessionListParameters, has_tag=True)
    def get(self, request: Request) -> Response:
        """The sessions that you may see, newest activity first, without their texts."""
        parameters, viewer, is_cut = self.parameters, viewer_of(request), False
        sessions = filters_in(parameters).apply(permissions.sessions_for(viewer, Purpose.LIST))
        if parameters["q"]:
            ids, is_all = find_session_ids(viewer, parameters["q"])
            sessions, is_cut = sessions.filter(pk__in=ids), not is_all
        page = list_sessions(sessions, before=parameters["cursor"], limit=parameters["limit"])
        next_page = base.page_link(request, cursor=format_cursor(page.next_before) if page.next_before else None)
        body = {"next": next_page, "previous": None, "results": page.sessions, "is_cut": is_cut}
        return base.tagged(request, SessionPageSerializer(body).data)


class OneSession(ApiView):
    scopes = {"GET": "read", "PATCH": "write", "DELETE": "delete"}

    @documented("read_session", "Read a session", SessionSerializer, has_tag=True)
    def get(self, request: Request, session_id: str) -> Response:
        """The same fields as in the list, without texts."""
        return base.tagged(request, SessionSerializer(session_for(request, session_id, Purpose.LIST)).data)

    @documented("change_session", "Change a session", SessionSerializer, body=SessionChange, statuses=(412, 413, 415))
    def patch(self, request: Request, session_id: str) -> Response:
        """Change the title, pin or archive a session. With `If-Match`, only if it has not changed since you read it."""
        session = session_for(request, session_id, Purpose.WRITE)
        change = SessionChange(data=request.data)
        change.is_valid(raise_exception=True)
        base.refuse_if_changed(request, SessionSerializer(session).data)
        actions.change(session, **change.validated_data)
        return base.with_tag(SessionSerializer(session_for(request, session.pk, Purpose.WRITE)).data)

    @documented("delete_session", "Delete a session", None, ReasonParameters, success=204, statuses=(409, 412))
    def delete(self, request: Request, session_id: str) -> Response:
        """Hide a session at once; it is removed when the trash is emptied. Your own session under hold is hidden but
        kept. A session of another user needs a `reason`; the request fails if that session is under hold.
        """
        session = session_for(request, session_id, Purpose.DELETE)
        base.refuse_if_changed(request, SessionSerializer(session).data)
        if not actions.delete(session, by=viewer_of(request), reason=reason_of(request)):
            raise ResourceNotFound  # another request deleted it first
        return Response(status=204)


class Messages(ApiView):
    @documented("read_messages", "Read messages", MessagePageSerializer, MessageListParameters, has_tag=True)
    def get(self, request: Request, session_id: str) -> Response:
        """The newest messages of a session, or the messages before or after one. The ETag is derived from the
        session's version, so a repeated request for an unchanged page is cheap.
        """
        parameters, session = self.parameters, open_session(request, session_id)
        position = {name: parameters[name] for name in ("before", "after", "leaf", "limit")}
        removed = (session.trimmed_through, session.dropped_through)
        tag = base.tag_of(session.pk, session.version, *removed, *position.values(), parameters["all"])
        if base.is_known(request, tag):
            return base.unchanged(tag)
        if parameters["leaf"] and not Message.objects.at(session, parameters["leaf"]).exists():
            raise ResourceNotFound
        page = _read_page(session, position)
        shown = [message for message in page.messages if parameters["all"] or message.kind in CONVERSATION]
        newest, oldest = (page.messages[-1].seq, page.messages[0].seq) if page.messages else (None, None)
        body = {
            "session_id": session.pk,
            "message_count": session.message_count,
            "version": session.version,
            "head": session.head,
            "next": base.message_link(request, after=newest if page.has_newer else None),
            "previous": base.message_link(request, before=oldest if page.has_older else None),
            "results": shown,
        }
        serializer = MessagePageSerializer(body, context={"calls": calls_by_message(shown)})
        return Response(serializer.data, headers={"ETag": tag})


def _read_page(session: Session, position: JsonObject) -> Page:
    """With `before` and `after`: the entries in between, oldest first."""
    if position["before"] is None or position["after"] is None:
        return messages_of(session, **position)
    page = messages_of(session, **{**position, "before": None})
    messages = [message for message in page.messages if message.seq < position["before"]]
    is_cut = len(messages) < len(page.messages)
    return page._replace(messages=messages, has_newer=page.has_newer and not is_cut)


class OneMessage(ApiView):
    @documented("read_message", "Read a complete message", WholeMessageSerializer, ReasonParameters, has_tag=True)
    def get(self, request: Request, session_id: str, seq: int) -> Response:
        """A message of any length with everything that is stored: parts, reasoning, attachments by hash."""
        session = open_session(request, session_id)
        message = get_object_or_404(Message.objects.at(session, min(seq, LARGEST)))
        try:
            entry = clean_deep(entry_to_json(entries_of([message])[0]))
        except MissingBlob:
            entry = None
        context = {"calls": calls_by_message([message]), "entry": entry}
        return base.tagged(request, WholeMessageSerializer(message, context=context).data)


class Search(ApiView):
    @documented("search", "Search", SearchPageSerializer, SearchParameters)
    def get(self, request: Request) -> Response:
        """Messages with these words, newest first. Text from a session of another user is included only if you gave a
        reason for reading that session within the last hour.
        """
        parameters = self.parameters
        viewer, words, filters = viewer_of(request), parameters["q"] or "", filters_in(parameters)
        page = search(viewer, words, filters=filters, before=parameters["cursor"], limit=parameters["limit"])
        body: dict[str, object] = {
            "next": page_link(request, cursor=page.next_before),
            "previous": None,
            "results": page.hits,
            "count": page.count if parameters["count"] else None,
            "facets": None,
        }
        if parameters["facets"]:
            body["facets"] = {
                facet: [{"value": str(value), **asdict(count)} for value, count in counts.items()]
                for facet, counts in named_facets(facets(viewer, words, filters=filters)).items()
            }
        readable = reasons.readable_without_reason(viewer, {hit.session_id for hit in page.hits})
        return Response(SearchPageSerializer(body, context={"opened": readable}).data)


class ToolCalls(ApiView):
    @documented("list_tool_calls", "List tool calls", ToolCallPageSerializer, ToolCallListParameters, has_tag=True)
    def get(self, request: Request) -> Response:
        """Tool calls of all sessions that you may see, or of one. Texts are cut off after 2,000 characters. A page can
        be empty and still have a next page, if no call matched the filters so far.
        """
        parameters = self.parameters
        filters = {"name": parameters["tool"], "status": parameters["status"]}
        filters |= {"created_at__gte": parameters["from"], "created_at__lt": parameters["to"]}
        sessions = _sessions(request, parameters)
        page = list_calls(sessions, filters=filters, after=parameters["cursor"], limit=parameters["limit"])
        next_page = page_link(request, cursor=str(page.next_after) if page.next_after else None)
        body = {"next": next_page, "previous": None, "results": page.calls}
        readable = reasons.readable_without_reason(viewer_of(request), {call.session_id for call in page.calls})
        return tagged(request, ToolCallPageSerializer(body, context={"opened": readable}).data)


def _sessions(request: Request, parameters: JsonObject) -> QuerySet[Session]:
    """Calls of one session may be requested with a reason; then their texts are shown."""
    listed = permissions.sessions_for(viewer_of(request), Purpose.LIST)
    if parameters["from"]:
        listed = listed.filter(last_activity_at__gte=parameters["from"])
    if not parameters["session"]:
        return listed
    if reason_of(request):
        open_session(request, parameters["session"])
    return listed.filter(pk=session_for(request, parameters["session"], Purpose.LIST).pk)


class OneExchange(ApiView):
    """The relay returns the id in `X-Parley-Exchange-Id`."""

    @documented("read_exchange", "Read an exchange", ExchangeSerializer, ReasonParameters, has_tag=True)
    def get(self, request: Request, exchange_id: str) -> Response:
        """The outcome, duration, token usage and cost of one call to a model."""
        exchange = _find_exchange(request, exchange_id)
        context = {"may_read": _may_read(request, exchange)}
        return tagged(request, ExchangeSerializer(exchange, context=context).data)


def _find_exchange(request: Request, exchange_id: str) -> Exchange:
    """One without a session needs the same reach. A client that retried has an id of each try, for one exchange."""
    try:
        pk = UUID(exchange_id)
    except ValueError:
        raise ResourceNotFound from None
    pk = EarlierTry.objects.filter(pk=pk).values_list("exchange", flat=True).first() or pk
    rows = Exchange.objects.select_related("message", "api_key").defer("inputs", "partial").filter(pk=pk)
    exchange = rows.first()
    reach = permissions.reach_of(viewer_of(request), Purpose.LIST)
    if exchange is None or reach is None:
        raise ResourceNotFound
    if exchange.session_id is not None:
        session_for(request, exchange.session_id, Purpose.LIST)
    elif not rows.filter(reach.as_q()).exists():
        raise ResourceNotFound
    return exchange


def _may_read(request: Request, exchange: Exchange) -> bool:
    if exchange.session_id is None:
        return exchange.owner_id == request.user.pk
    if reason_of(request):
        open_session(request, exchange.session_id)
    return exchange.session_id in reasons.readable_without_reason(viewer_of(request), [exchange.session_id])
