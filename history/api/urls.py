"""Addresses of the API, each with and without a slash at its end: nobody is sent elsewhere."""

from __future__ import annotations

from typing import Any

from django.urls import URLPattern, path

from history.api import exchanges, exporting, importing, messages, pages, searching, sessions, tool_calls


def both(route: str, view: Any, *, name: str) -> list[URLPattern]:
    return [path(route, view, name=name), path(f"{route}/", view)]


app_name = "api"
urlpatterns = [
    *both("history/sessions", sessions.Sessions.as_view(), name="sessions"),
    *both("history/sessions/<str:session_id>", sessions.OneSession.as_view(), name="session"),
    *both("history/sessions/<str:session_id>/messages", messages.MessageListView.as_view(), name="messages"),
    *both("history/sessions/<str:session_id>/messages/<int:seq>", messages.OneMessage.as_view(), name="message"),
    *both("history/tool-calls", tool_calls.ToolCalls.as_view(), name="tool-calls"),
    *both("history/exchanges/<str:exchange_id>", exchanges.OneExchange.as_view(), name="exchange"),
    *both("history/search", searching.Search.as_view(), name="search"),
    *both("history/export", exporting.ExportSessions.as_view(), name="export"),
    *both("history/import", importing.ImportFile.as_view(), name="import"),
    *both("history/import/<str:import_id>", importing.OneImport.as_view(), name="import-job"),
    *both("schema", pages.SchemaView.as_view(), name="schema"),
    *both("docs", pages.ReferenceView.as_view(), name="docs"),
]
