"""URLs of REST endpoints that call models."""

from history.api.urls import both
from relay.api import summaries

app_name = "relay-api"
urlpatterns = [
    *both("history/sessions/<str:session_id>/summaries", summaries.Summaries.as_view(), name="summaries"),
    *both("history/sessions/<str:session_id>/summaries/<int:seq>", summaries.OneSummary.as_view(), name="summary"),
]
