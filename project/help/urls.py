"""Addresses under /help/."""

from django.urls import path

from project.help import views

app_name = "help"
urlpatterns = [
    path("", views.index, name="index"),
    path("images/<slug:name>.png", views.picture, name="picture"),
    path("<path:name>/", views.page, name="page"),
]
