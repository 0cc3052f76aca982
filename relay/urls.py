"""Addresses of the carrier: chat, agents, providers."""

from django.urls import path

from relay.views import attachments, browse, chat, keys, palette, panel, providers, rail, sharing

app_name = "relay"
urlpatterns = [
    path("s/<uuid:session_id>/<int:seq>/edit/", chat.edit_form, name="edit"),
    path("s/<uuid:session_id>/panel/", panel.panel, name="panel"),
    path("s/<uuid:session_id>/settings/", panel.change_settings, name="settings"),
    path("providers/", providers.providers, name="providers"),
    path("providers/<str:name>/try/", providers.try_provider, name="try_provider"),
    path("keys/", keys.all_keys, name="keys"),
    path("keys/<str:prefix>/", keys.one_key, name="key"),
    path("keys/<str:prefix>/limits/", keys.limit, name="limit"),
    path("keys/<str:prefix>/revoke/", keys.revoke, name="revoke_key"),
    path("keys/<str:prefix>/forget/", keys.forget, name="forget"),
    path("rail/", rail.rail, name="rail"),
    path("palette/", palette.palette, name="palette"),
    path("rail/delete/", rail.delete_many, name="delete_many"),
    path("rail/undelete/", rail.undelete_all, name="undelete_all"),
    path("rail/archive/", rail.archive_many, {"archived": True}, name="archive_many"),
    path("rail/unarchive/", rail.archive_many, {"archived": False}, name="unarchive_many"),
    path("history/delete/", browse.delete_many, name="browse_delete"),
    path("history/undelete/", browse.undelete_all, name="browse_undelete"),
    path("history/archive/", browse.archive_many, {"archived": True}, name="browse_archive"),
    path("history/unarchive/", browse.archive_many, {"archived": False}, name="browse_unarchive"),
    path("s/<uuid:session_id>/row/", rail.row, name="row"),
    path("s/<uuid:session_id>/pin/", rail.pin, {"pinned": True}, name="pin"),
    path("s/<uuid:session_id>/unpin/", rail.pin, {"pinned": False}, name="unpin"),
    path("s/<uuid:session_id>/archive/", rail.archive, {"archived": True}, name="archive"),
    path("s/<uuid:session_id>/unarchive/", rail.archive, {"archived": False}, name="unarchive"),
    path("s/<uuid:session_id>/rename/", rail.rename, name="rename"),
    path("s/<uuid:session_id>/delete/", rail.delete, name="delete"),
    path("s/<uuid:session_id>/undelete/", rail.undelete, name="undelete"),
    path("s/<uuid:session_id>/share/", sharing.links, name="share"),
    path("s/<uuid:session_id>/share/<uuid:link_id>/revoke/", sharing.revoke_link, name="revoke"),
    path("shared/<str:token>/", sharing.shared, name="shared"),
    path("shared/<str:token>/attachments/<str:sha256>", sharing.attachment, name="shared_attachment"),
    path("attachments/", attachments.upload, name="attach"),
    path("attachments/<uuid:session_id>/<str:sha256>", attachments.attachment, name="attachment"),
]
