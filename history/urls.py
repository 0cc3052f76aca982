from django.urls import path

from history.views import browse, charts, entry, exporting, opening, timeline

app_name = "history"
urlpatterns = [
    path("history/", browse.history, name="browse"),
    path("history/export/", exporting.export, name="export"),
    path("charts/", charts.charts, name="charts"),
    path("s/<uuid:session_id>/timeline/", timeline.timeline, name="timeline"),
    path("s/<uuid:session_id>/open/", opening.open_session, name="open"),
    path("s/<uuid:session_id>/<int:seq>/", entry.whole_entry, name="entry"),
]
