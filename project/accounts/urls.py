"""Addresses under /accounts/."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from project.accounts import views

app_name = "accounts"
urlpatterns = [
    path("signin/", views.SignIn.as_view(), name="signin"),
    path("signout/", LogoutView.as_view(), name="signout"),
    path("link/<str:token>/", views.link, name="link"),
    path("password/", views.password, name="password"),
    path("preferences/", views.preferences, name="preferences"),
    path("preferences/saved/", views.preferences_saved, name="preferences_saved"),
    path("people/", views.people, name="people"),
    path("people/<int:pk>/link/", views.link_for, name="link_for"),
]
