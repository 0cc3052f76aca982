"""The indexes that search asks: an FTS5 table beside the rows on SQLite, a GIN index over them on PostgreSQL.

The FTS5 table keeps no text of its own and is not known to Django; triggers follow every insert and delete, so that
emptying the table of rows empties it too. The words are made by us: its tokenizer may only split at spaces.
"""

from django.db import migrations

SQLITE = [
    """
    CREATE VIRTUAL TABLE history_searchindex USING fts5(
        tokens, content='history_searchrow', content_rowid='id', columnsize=0, tokenize="ascii tokenchars ':'"
    )
    """,
    """
    CREATE TRIGGER history_searchrow_inserted AFTER INSERT ON history_searchrow BEGIN
        INSERT INTO history_searchindex(rowid, tokens) VALUES (new.id, new.tokens);
    END
    """,
    """
    CREATE TRIGGER history_searchrow_deleted AFTER DELETE ON history_searchrow BEGIN
        INSERT INTO history_searchindex(history_searchindex, rowid, tokens) VALUES ('delete', old.id, old.tokens);
    END
    """,
]
SQLITE_BACK = [
    "DROP TRIGGER history_searchrow_inserted",
    "DROP TRIGGER history_searchrow_deleted",
    "DROP TABLE history_searchindex",
]
# Without the list of pending entries: every search would have to read it through, and now and then an append would
# have to pay for all of it at once.
POSTGRESQL = ["CREATE INDEX history_searchrow_tokens ON history_searchrow USING gin (tokens) WITH (fastupdate = off)"]
POSTGRESQL_BACK = ["DROP INDEX history_searchrow_tokens"]


def create_index(apps, schema_editor):
    for statement in {"sqlite": SQLITE, "postgresql": POSTGRESQL}[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


def drop_index(apps, schema_editor):
    for statement in {"sqlite": SQLITE_BACK, "postgresql": POSTGRESQL_BACK}[schema_editor.connection.vendor]:
        schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("history", "0001_initial")]

    operations = [migrations.RunPython(create_index, drop_index)]
