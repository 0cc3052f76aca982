"""URLs of the chat, keys, notebooks, providers and sharing."""

from django.urls import path

from relay.pages import attachments, history_actions, keys, notebooks, palette, panel, providers, sharing
from relay.pages.chat import views as chat
from relay.pages.sidebar import views as sidebar

app_name = "relay"
urlpatterns = [
    path("s/<uuid:session_id>/<int:seq>/edit/", chat.edit_form, name="edit"),
    path("s/<uuid:session_id>/<int:seq>/fork/", chat.fork, name="fork"),
    path("s/<uuid:session_id>/panel/", panel.panel, name="panel"),
    path("s/<uuid:session_id>/readings/seen/", panel.readings_seen, name="readings_seen"),
    path("s/<uuid:session_id>/settings/", panel.change_settings, name="settings"),
    path("providers/", providers.providers, name="providers"),
    path("providers/<str:name>/try/", providers.test_provider, name="try_provider"),
    path("keys/", keys.all_keys, name="keys"),
    path("keys/<str:prefix>/", keys.one_key, name="key"),
    path("keys/<str:prefix>/limits/", keys.limit, name="limit"),
    path("keys/<str:prefix>/revoke/", keys.revoke, name="revoke_key"),
    path("keys/<str:prefix>/forget/", keys.forget, name="forget"),
    path("mcp-servers/", providers.mcp_servers, name="mcp_servers"),
    path("mcp-servers/<str:name>/look/", providers.refresh_mcp_server, name="look_at_mcp_server"),
    path("notebook/", notebooks.all_notebooks, name="notebooks"),
    path("notebook/<slug:agent>/", notebooks.one_notebook, name="notebook"),
    path("notebook/<slug:agent>/restore/", notebooks.restore, name="restore_notebook"),
    path("rail/", sidebar.sidebar, name="sidebar"),
    path("palette/", palette.palette, name="palette"),
    path("rail/delete/", sidebar.delete_many, name="delete_many"),
    path("rail/undelete/", sidebar.undelete_all, name="undelete_all"),
    path("rail/archive/", sidebar.archive_many, {"archived": True}, name="archive_many"),
    path("rail/unarchive/", sidebar.archive_many, {"archived": False}, name="unarchive_many"),
    path("history/delete/", history_actions.delete_many, name="browse_delete"),
    path("history/deleted/", history_actions.deleted, name="deleted"),
    path("history/deleted/restore/", history_actions.restore, name="restore"),
    path("history/undelete/", history_actions.undelete_all, name="browse_undelete"),
    path("history/archive/", history_actions.archive_many, {"archived": True}, name="browse_archive"),
    path("history/unarchive/", history_actions.archive_many, {"archived": False}, name="browse_unarchive"),
    path("s/<uuid:session_id>/row/", sidebar.row, name="row"),
    path("s/<uuid:session_id>/pin/", sidebar.pin, {"pinned": True}, name="pin"),
    path("s/<uuid:session_id>/unpin/", sidebar.pin, {"pinned": False}, name="unpin"),
    path("s/<uuid:session_id>/archive/", sidebar.archive, {"archived": True}, name="archive"),
    path("s/<uuid:session_id>/unarchive/", sidebar.archive, {"archived": False}, name="unarchive"),
    path("s/<uuid:session_id>/rename/", sidebar.rename, name="rename"),
    path("s/<uuid:session_id>/delete/", sidebar.delete, name="delete"),
    path("s/<uuid:session_id>/undelete/", sidebar.undelete, name="undelete"),
    path("s/<uuid:session_id>/share/", sharing.links, name="share"),
    path("s/<uuid:session_id>/share/<uuid:link_id>/revoke/", sharing.revoke_link, name="revoke"),
    path("shared/<str:token>/", sharing.shared, name="shared"),
    path("shared/<str:token>/attachments/<str:sha256>", sharing.attachment, name="shared_attachment"),
    path("attachments/", attachments.upload, name="attach"),
    path("attachments/<uuid:session_id>/<str:sha256>", attachments.attachment, name="attachment"),
]
