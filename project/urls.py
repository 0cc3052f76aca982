"""Every address of Parley."""

from django.contrib import admin
from django.urls import include, path

from project import views
from project.accounts.views import admin_signin
from relay.pages.chat import views as chat_views
from relay.status.metrics import metrics

# Under /api/ in its own form, elsewhere as pages.
handler400 = views.bad_request
handler403 = views.not_permitted
handler404 = views.not_found
handler500 = views.server_error

admin.autodiscover()

urlpatterns = [
    path("", chat_views.new_chat, name="home"),
    path("s/<uuid:session_id>/", chat_views.session_page, name="session"),
    path("healthz", views.healthz, name="healthz"),
    path("readyz", views.readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("accounts/", include("project.accounts.urls")),
    path("help/", include("project.help.urls")),
    path("admin/login/", admin_signin),
    path("admin/", admin.site.urls),
    path("api/", include("history.api.urls")),
    path("api/", include("relay.api.urls")),
    path("", include("history.urls")),
    path("", include("relay.urls")),
]
