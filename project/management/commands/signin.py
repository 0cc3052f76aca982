"""`manage.py signin USER`: a one-time sign-in link for a user."""

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from project.accounts.links import HOURS, create_link
from project.accounts.models import User
from project.server.readiness import check_database, check_migrations


class Command(BaseCommand):
    help = "Print a new one-time sign-in link for a user."
    # The checks import every page, which takes longer than this command. `serve` runs them.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", help="username")
        parser.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        check_database()
        check_migrations()
        user = active_user(options["user"])
        link = create_link(user)
        if options["json"]:
            self.stdout.write(json.dumps({"user": user.username, "link": link, "hours": HOURS}))
        else:
            self.stdout.write(link)


def active_user(name: str) -> User:
    user = User.objects.filter(username=name).first()
    if user is None:
        text = f"There is no user “{name}”. Create the user on the page /accounts/people/ or with createsuperuser."
        raise CommandError(text)
    if not user.is_active:
        raise CommandError(f"The user “{name}” is disabled. Enable the user in the admin first.")
    return user
