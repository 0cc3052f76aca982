"""`/api/history/tool-calls`: calls across sessions as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from history.access import permissions, reasons
from history.access.permissions import Purpose
from history.api.access import open_session, session_for
from history.api.answers import ToolCallsAnswer
from history.api.etags import tagged
from history.api.pagination import page_link
from history.api.query import ToolCallsAsked
from history.api.schema import documented
from history.api.views import ApiView, reason_of, viewer_of
from history.models import Session
from history.record.tool_calls import CallFilters, list_calls


class ToolCalls(ApiView):
    @documented(
        "list_tool_calls",
        "List tool calls",
        ToolCallsAnswer,
        asked=ToolCallsAsked,
        has_tag=True,
        description="Of all sessions that you may see, or of one; texts are cut at 2,000 characters. A page may be "
        "empty and still have a next page: then the filters left nothing so far.",
    )
    def get(self, request: Request) -> Response:
        asked = ToolCallsAsked.of(request)
        filters = CallFilters(tool=asked["tool"], status=asked["status"], since=asked["from"], until=asked["to"])
        page = list_calls(_sessions(request, asked), filters=filters, after=asked["cursor"], limit=asked["limit"])
        next_page = page_link(request, cursor=page.next_after and str(page.next_after))
        told = {"next": next_page, "previous": None, "results": page.calls}
        readable = reasons.readable_without_reason(viewer_of(request), {call.session_id for call in page.calls})
        return tagged(request, ToolCallsAnswer(told, context={"opened": readable}).data)


def _sessions(request: Request, asked: Mapping[str, Any]) -> QuerySet[Session]:
    """Calls of one session may be asked for with a reason, and then their texts are shown."""
    served = permissions.sessions_for(viewer_of(request), Purpose.LIST)
    if asked["from"]:
        served = served.filter(last_activity_at__gte=asked["from"])
    if not asked["session"]:
        return served
    if reason_of(request):
        open_session(request, asked["session"])
    return served.filter(pk=session_for(request, asked["session"], Purpose.LIST).pk)
