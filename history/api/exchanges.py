"""`/api/history/exchanges/<id>`: one call to a model. The relay names it in `X-Parley-Exchange-Id`."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from history.access import permissions, reasons
from history.access.permissions import Purpose
from history.api.access import open_session, session_for
from history.api.answers import ExchangeAnswer
from history.api.errors import NoSuchThing
from history.api.etags import tagged
from history.api.query import OneAsked
from history.api.schema import documented
from history.api.views import ApiView, reason_of, viewer_of
from history.models import EarlierTry, Exchange


class OneExchange(ApiView):
    @documented(
        "read_exchange",
        "Read an exchange",
        ExchangeAnswer,
        asked=OneAsked,
        path=("exchange_id",),
        has_tag=True,
        description="What became of one call to a model: how it ended, how long it took, what it used and cost.",
    )
    def get(self, request: Request, exchange_id: str) -> Response:
        OneAsked.of(request)
        exchange = _found(request, exchange_id)
        context = {"may_read": _may_read(request, exchange)}
        return tagged(request, ExchangeAnswer(exchange, context=context).data)


def _found(request: Request, name: str) -> Exchange:
    """Of a session that they may list; one without a session is seen by whoever would see a session of the kind.

    A client that tried again was told an id for each try: all of them are this one exchange.
    """
    try:
        found = Exchange.objects.select_related("message", "api_key").defer("inputs", "partial").filter(pk=_id_of(name))
    except ValueError:
        raise NoSuchThing from None
    exchange = found.first()
    reach = permissions.reach_of(viewer_of(request), Purpose.LIST)
    if exchange is None or reach is None:
        raise NoSuchThing
    if exchange.session_id is not None:
        session_for(request, exchange.session_id, Purpose.LIST)
    elif not found.filter(reach.as_q()).exists():
        raise NoSuchThing
    return exchange


def _id_of(name: str) -> UUID:
    asked = UUID(name)
    return EarlierTry.objects.filter(pk=asked).values_list("exchange", flat=True).first() or asked


def _may_read(request: Request, exchange: Exchange) -> bool:
    if exchange.session_id is None:
        return exchange.owner_id == request.user.pk
    if reason_of(request):
        open_session(request, exchange.session_id)
    return exchange.session_id in reasons.readable_without_reason(viewer_of(request), [exchange.session_id])
