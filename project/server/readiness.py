"""What must be true before anybody is served: the database answers, and its tables are those of this version."""

from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.migrations.executor import MigrationExecutor


def database_problem() -> str:
    """Why the database cannot be used, in the database's own words on one line; empty if it can."""
    connection = connections[DEFAULT_DB_ALIAS]
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Error as error:
        connection.close()
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def unapplied_migrations() -> list[str]:
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return [f"{migration.app_label}.{migration.name}" for migration, _ in plan]
