"""URLs of the REST API, each with and without a slash at its end, without a redirect."""

from collections.abc import Callable

from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from history.api import schema, transfer, views


def both(route: str, view: Callable[..., HttpResponseBase], *, name: str) -> list[URLPattern]:
    return [path(route, view, name=name), path(f"{route}/", view)]


app_name = "api"
urlpatterns = [
    *both("history/sessions", views.Sessions.as_view(), name="sessions"),
    *both("history/sessions/<str:session_id>", views.OneSession.as_view(), name="session"),
    *both("history/sessions/<str:session_id>/messages", views.Messages.as_view(), name="messages"),
    *both("history/sessions/<str:session_id>/messages/<int:seq>", views.OneMessage.as_view(), name="message"),
    *both("history/tool-calls", views.ToolCalls.as_view(), name="tool-calls"),
    *both("history/exchanges/<str:exchange_id>", views.OneExchange.as_view(), name="exchange"),
    *both("history/search", views.Search.as_view(), name="search"),
    *both("history/export", transfer.ExportSessions.as_view(), name="export"),
    *both("history/import", transfer.ImportFile.as_view(), name="import"),
    *both("history/import/<str:import_id>", transfer.OneImport.as_view(), name="import-job"),
    *both("schema", schema.SchemaView.as_view(), name="schema"),
    *both("docs", schema.ReferenceView.as_view(), name="docs"),
]
