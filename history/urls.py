from django.urls import path

from history import views

app_name = "history"
urlpatterns = [
    path("s/<uuid:session_id>/<int:seq>/", views.whole_entry, name="entry"),
]
