from django.urls import path

from history.pages import charts, export, imports, lint, session
from history.pages.browse import views as browse

app_name = "history"
urlpatterns = [
    path("history/", browse.history, name="browse"),
    path("history/export/", export.export, name="export"),
    path("lint/", lint.lint, name="lint"),
    path("charts/", charts.charts, name="charts"),
    path("s/<uuid:session_id>/timeline/", session.timeline, name="timeline"),
    path("import/", imports.imports, name="imports"),
    path("import/begin/", imports.begin, name="import_begin"),
    path("import/<uuid:job_id>/", imports.import_job, name="import_job"),
    path("import/<uuid:job_id>/pieces/<int:place>/", imports.piece, name="import_piece"),
    path("import/<uuid:job_id>/start/", imports.start, name="import_start"),
    path("import/<uuid:job_id>/remove/", imports.remove, name="import_remove"),
    path("s/<uuid:session_id>/open/", session.open_session, name="open"),
    path("s/<uuid:session_id>/<int:seq>/", session.whole_entry, name="entry"),
]
