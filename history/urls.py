from django.urls import path

from history.views import entry

app_name = "history"
urlpatterns = [
    path("s/<uuid:session_id>/<int:seq>/", entry.whole_entry, name="entry"),
]
