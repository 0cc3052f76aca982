"""Every address of Parley."""

from django.contrib import admin
from django.urls import include, path

from project import views
from project.accounts.views import admin_signin

urlpatterns = [
    path("", views.home, name="home"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("accounts/", include("project.accounts.urls")),
    path("admin/login/", admin_signin),
    path("admin/", admin.site.urls),
    path("", include("history.urls")),
    path("", include("relay.urls")),
]
