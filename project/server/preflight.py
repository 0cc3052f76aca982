"""What commands ask of the database before they begin, with an answer that says what to do."""

from django.conf import settings
from django.core.management.base import CommandError

from project.config.env import shown
from project.server import readiness


def check_database() -> None:
    """CommandError, one line, if the database cannot be reached."""
    problem = readiness.database_problem()
    if problem:
        raise CommandError(
            f"The database {shown('DATABASE_URL', settings.DATABASE_URL)} cannot be used ({problem})."
            " Start it, or correct DATABASE_URL."
        )


def check_migrations() -> None:
    if readiness.unapplied_migrations():
        raise CommandError("The database is not up to date. Run: manage.py migrate")
