"""Removal of linked sessions: existing links move to `Session.metadata["continues"]`."""

from typing import Any
from uuid import UUID

from django.db import migrations

KEY = "continues"


def move_links_to_metadata(apps: Any, schema_editor: Any) -> None:
    sessions = apps.get_model("history", "Session").objects.using(schema_editor.connection.alias)
    linked = sessions.exclude(continues=None).only("metadata", "continues_id")
    for session in linked.iterator(chunk_size=500):
        metadata = {**session.metadata, KEY: str(session.continues_id)}
        sessions.filter(pk=session.pk).update(metadata=metadata)


def move_links_to_column(apps: Any, schema_editor: Any) -> None:
    """Restore links to sessions that still exist; others stay in the metadata."""
    sessions = apps.get_model("history", "Session").objects.using(schema_editor.connection.alias)
    for session in sessions.filter(metadata__has_key=KEY).only("metadata").iterator(chunk_size=500):
        metadata = dict(session.metadata)
        try:
            target = UUID(metadata.pop(KEY))
        except (TypeError, ValueError, AttributeError):
            continue
        if sessions.filter(pk=target).exists():
            sessions.filter(pk=session.pk).update(continues_id=target, metadata=metadata)


class Migration(migrations.Migration):
    dependencies = [("history", "0001_initial")]

    operations = [
        # The reverse of RemoveField adds the column before the reverse of RunPython fills it.
        migrations.RunPython(move_links_to_metadata, move_links_to_column),
        migrations.RemoveField("session", "continues"),
    ]
