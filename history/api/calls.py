"""REST: tool calls across sessions as rows, and one call to a model (an exchange) by its id."""

from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from history.access import permissions, reasons
from history.access.permissions import Purpose
from history.api.base import ApiView, open_session, page_link, reason_of, session_for, tagged, viewer_of
from history.api.errors import NoSuchThing
from history.api.parameters import ReasonParameters, ToolCallListParameters
from history.api.schema import documented
from history.api.serializers import ExchangeSerializer, ToolCallPageSerializer
from history.entries import JsonObject
from history.models import EarlierTry, Exchange, Session
from history.record.listing import list_calls


class ToolCalls(ApiView):
    @documented("list_tool_calls", "List tool calls", ToolCallPageSerializer, ToolCallListParameters, has_tag=True)
    def get(self, request: Request) -> Response:
        """Of all sessions that you may see, or of one; texts are cut at 2,000 characters. A page may be empty and still
        have a next page: then the filters left nothing so far.
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
        """What became of one call to a model: how it ended, how long it took, what it used and cost."""
        exchange = _find_exchange(request, exchange_id)
        context = {"may_read": _may_read(request, exchange)}
        return tagged(request, ExchangeSerializer(exchange, context=context).data)


def _find_exchange(request: Request, exchange_id: str) -> Exchange:
    """The exchange, if the viewer may list its session. One without a session needs the same reach.

    A client that retried has an id of each try: all of them are this one exchange.
    """
    try:
        pk = UUID(exchange_id)
    except ValueError:
        raise NoSuchThing from None
    pk = EarlierTry.objects.filter(pk=pk).values_list("exchange", flat=True).first() or pk
    rows = Exchange.objects.select_related("message", "api_key").defer("inputs", "partial").filter(pk=pk)
    exchange = rows.first()
    reach = permissions.reach_of(viewer_of(request), Purpose.LIST)
    if exchange is None or reach is None:
        raise NoSuchThing
    if exchange.session_id is not None:
        session_for(request, exchange.session_id, Purpose.LIST)
    elif not rows.filter(reach.as_q()).exists():
        raise NoSuchThing
    return exchange


def _may_read(request: Request, exchange: Exchange) -> bool:
    if exchange.session_id is None:
        return exchange.owner_id == request.user.pk
    if reason_of(request):
        open_session(request, exchange.session_id)
    return exchange.session_id in reasons.readable_without_reason(viewer_of(request), [exchange.session_id])
