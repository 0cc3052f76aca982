"""Addresses of the carrier: chat, agents, providers."""

from django.urls import path

from relay.pages.attachments import views as attachments_views
from relay.pages.browse import views as browse_views
from relay.pages.chat import forking
from relay.pages.chat import views as chat_views
from relay.pages.keys import views as keys_views
from relay.pages.mcp_servers import views as mcp_servers_views
from relay.pages.notebooks import views as notebooks_views
from relay.pages.palette import views as palette_views
from relay.pages.panel import views as panel_views
from relay.pages.providers import views as providers_views
from relay.pages.sharing import views as sharing_views
from relay.pages.sidebar import views as sidebar_views
from relay.pages.trash import views as trash_views

app_name = "relay"
urlpatterns = [
    path("s/<uuid:session_id>/<int:seq>/edit/", chat_views.edit_form, name="edit"),
    path("s/<uuid:session_id>/<int:seq>/fork/", forking.fork, name="fork"),
    path("s/<uuid:session_id>/panel/", panel_views.panel, name="panel"),
    path("s/<uuid:session_id>/readings/seen/", panel_views.readings_seen, name="readings_seen"),
    path("s/<uuid:session_id>/settings/", panel_views.change_settings, name="settings"),
    path("providers/", providers_views.providers, name="providers"),
    path("providers/<str:name>/try/", providers_views.try_provider, name="try_provider"),
    path("keys/", keys_views.all_keys, name="keys"),
    path("keys/<str:prefix>/", keys_views.one_key, name="key"),
    path("keys/<str:prefix>/limits/", keys_views.limit, name="limit"),
    path("keys/<str:prefix>/revoke/", keys_views.revoke, name="revoke_key"),
    path("keys/<str:prefix>/forget/", keys_views.forget, name="forget"),
    path("mcp-servers/", mcp_servers_views.servers, name="mcp_servers"),
    path("mcp-servers/<str:name>/look/", mcp_servers_views.look_at, name="look_at_mcp_server"),
    path("notebook/", notebooks_views.all_notebooks, name="notebooks"),
    path("notebook/<slug:agent>/", notebooks_views.one_notebook, name="notebook"),
    path("notebook/<slug:agent>/restore/", notebooks_views.restore, name="restore_notebook"),
    path("rail/", sidebar_views.rail, name="rail"),
    path("palette/", palette_views.palette, name="palette"),
    path("rail/delete/", sidebar_views.delete_many, name="delete_many"),
    path("rail/undelete/", sidebar_views.undelete_all, name="undelete_all"),
    path("rail/archive/", sidebar_views.archive_many, {"archived": True}, name="archive_many"),
    path("rail/unarchive/", sidebar_views.archive_many, {"archived": False}, name="unarchive_many"),
    path("history/delete/", browse_views.delete_many, name="browse_delete"),
    path("history/deleted/", trash_views.deleted, name="deleted"),
    path("history/deleted/restore/", trash_views.restore, name="restore"),
    path("history/undelete/", browse_views.undelete_all, name="browse_undelete"),
    path("history/archive/", browse_views.archive_many, {"archived": True}, name="browse_archive"),
    path("history/unarchive/", browse_views.archive_many, {"archived": False}, name="browse_unarchive"),
    path("s/<uuid:session_id>/row/", sidebar_views.row, name="row"),
    path("s/<uuid:session_id>/pin/", sidebar_views.pin, {"pinned": True}, name="pin"),
    path("s/<uuid:session_id>/unpin/", sidebar_views.pin, {"pinned": False}, name="unpin"),
    path("s/<uuid:session_id>/archive/", sidebar_views.archive, {"archived": True}, name="archive"),
    path("s/<uuid:session_id>/unarchive/", sidebar_views.archive, {"archived": False}, name="unarchive"),
    path("s/<uuid:session_id>/rename/", sidebar_views.rename, name="rename"),
    path("s/<uuid:session_id>/delete/", sidebar_views.delete, name="delete"),
    path("s/<uuid:session_id>/undelete/", sidebar_views.undelete, name="undelete"),
    path("s/<uuid:session_id>/share/", sharing_views.links, name="share"),
    path("s/<uuid:session_id>/share/<uuid:link_id>/revoke/", sharing_views.revoke_link, name="revoke"),
    path("shared/<str:token>/", sharing_views.shared, name="shared"),
    path("shared/<str:token>/attachments/<str:sha256>", sharing_views.attachment, name="shared_attachment"),
    path("attachments/", attachments_views.upload, name="attach"),
    path("attachments/<uuid:session_id>/<str:sha256>", attachments_views.attachment, name="attachment"),
]
