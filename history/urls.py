from django.urls import path

from history.views import entry, opening

app_name = "history"
urlpatterns = [
    path("s/<uuid:session_id>/open/", opening.open_session, name="open"),
    path("s/<uuid:session_id>/<int:seq>/", entry.whole_entry, name="entry"),
]
