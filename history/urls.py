from django.urls import path

from history.pages.browse import views as browse_views
from history.pages.charts import views as charts_views
from history.pages.entry import views as entry_views
from history.pages.export import views as export_views
from history.pages.imports import views as imports_views
from history.pages.lint import views as lint_views
from history.pages.reasons import views as reasons_views
from history.pages.timeline import views as timeline_views

app_name = "history"
urlpatterns = [
    path("history/", browse_views.history, name="browse"),
    path("history/export/", export_views.export, name="export"),
    path("lint/", lint_views.lint, name="lint"),
    path("charts/", charts_views.charts, name="charts"),
    path("s/<uuid:session_id>/timeline/", timeline_views.timeline, name="timeline"),
    path("import/", imports_views.imports, name="imports"),
    path("import/begin/", imports_views.begin, name="import_begin"),
    path("import/<uuid:job_id>/", imports_views.import_job, name="import_job"),
    path("import/<uuid:job_id>/pieces/<int:place>/", imports_views.piece, name="import_piece"),
    path("import/<uuid:job_id>/start/", imports_views.start, name="import_start"),
    path("import/<uuid:job_id>/remove/", imports_views.remove, name="import_remove"),
    path("s/<uuid:session_id>/open/", reasons_views.open_session, name="open"),
    path("s/<uuid:session_id>/<int:seq>/", entry_views.whole_entry, name="entry"),
]
