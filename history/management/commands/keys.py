"""`manage.py keys create | list | revoke`: API keys for the relay and the REST API.

Exit codes: 0 done, 1 not found or refused, 2 wrong usage.
"""

from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access import keys
from history.management.cli.arguments import user_named
from history.management.output import print_json, print_table
from history.models import ApiKey


class Command(BaseCommand):
    help = "Create, list and revoke API keys."
    requires_system_checks: list[str] = []  # skip the system checks, which import every page: `serve` runs them

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="create | list | revoke")
        create = actions.add_parser("create", help="Create a key and print it once.")
        create.add_argument("name", help="name of the key")
        create.add_argument("--owner", help="username of the owner; default: the first staff user")
        create.add_argument(
            "--scopes",
            default=",".join(keys.DEFAULT_SCOPES),
            help=f"comma-separated scopes out of {','.join(keys.SCOPES)}",
        )
        create.add_argument("--recording", default=ApiKey.Recording.REDACTED.value, choices=ApiKey.Recording.values)
        create.add_argument("--owner-wide", action="store_true", help="the key sees all sessions of its owner")
        create.add_argument(
            "--expires-days", type=_days, metavar="N", help="days until the key expires; default: never"
        )
        for name in keys.LIMITS:
            kind = _amount if name.startswith("cost_") else int
            create.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="N")
        shown = actions.add_parser("list", help="List the active keys.")
        shown.add_argument("--all", action="store_true", help="include revoked and expired keys")
        revoke = actions.add_parser("revoke", help="Revoke a key. All servers refuse it within a second.")
        revoke.add_argument("prefix", help="prefix of the key as shown by `keys list`")
        for action in (create, shown, revoke):
            action.add_argument("--json", action="store_true", help="print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        actions = {"create": self.create_key, "list": self.list_keys, "revoke": self.revoke_key}
        actions[options["action"]](options)

    def create_key(self, options: dict[str, Any]) -> None:
        try:
            new = keys.create(
                name=options["name"],
                owner=user_named(options["owner"]) if options["owner"] else None,
                scopes=[scope.strip() for scope in options["scopes"].split(",") if scope.strip()],
                recording=options["recording"],
                owner_wide=options["owner_wide"],
                expires_at=timezone.now() + options["expires_days"] if options["expires_days"] else None,
                **{name: options[name] for name in keys.LIMITS},
            )
        except keys.NotAllowedError as error:
            raise CommandError(str(error)) from error
        except keys.CannotCreateError as error:
            raise CommandError(str(error), returncode=2) from error
        if options["json"]:
            print_json(self.stdout, {"key": new.secret, **_key_json(new.api_key)})
            return
        self.stdout.write(new.secret)
        self.stderr.write(_("The key is shown only once. Store it in a safe place."))

    def list_keys(self, options: dict[str, Any]) -> None:
        rows = [_key_json(api_key) for api_key in keys.list_keys(include_ended=options["all"])]
        if options["json"]:
            print_json(self.stdout, rows)
            return
        columns = (_("prefix"), _("name"), _("owner"), _("scopes"), _("recording"), _("state"), _("last used"))
        shown = ("prefix", "name", "owner", "scopes", "recording", "state", "last_used_at")
        rows = [{**row, "scopes": ",".join(row["scopes"])} for row in rows]
        print_table(self.stdout, columns, [[row[field] for field in shown] for row in rows])

    def revoke_key(self, options: dict[str, Any]) -> None:
        api_key = keys.find(options["prefix"])
        if api_key is None:
            raise CommandError(_("There is no such key. `keys list` shows the prefixes."))
        ended = keys.revoke(api_key, actor=None)
        if options["json"]:
            print_json(self.stdout, _key_json(api_key))
        elif ended:
            self.stdout.write(_("The key %(key)s is revoked.") % {"key": api_key})
        else:
            self.stdout.write(_("The key %(key)s was already revoked.") % {"key": api_key})


def _days(text: str) -> timedelta:
    days = float(text)
    if not 0 < days <= 36_500:  # a century
        raise ValueError(text)
    return timedelta(days=days)


def _amount(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(text) from error


def _key_json(api_key: ApiKey) -> dict[str, Any]:
    """Everything but the secret."""
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    return {
        "prefix": api_key.prefix,
        "name": api_key.name,
        "owner": api_key.owner.get_username(),
        "scopes": api_key.scopes,
        "recording": api_key.recording,
        "owner_wide": api_key.owner_wide,
        "state": _state(api_key),
        **{name: getattr(api_key, name) for name in times},
        "limits": {name: getattr(api_key, name) for name in keys.LIMITS if getattr(api_key, name) is not None},
    }


def _state(api_key: ApiKey) -> str:
    if api_key.revoked_at:
        return "revoked"
    return "expired" if api_key.expires_at and api_key.expires_at <= timezone.now() else "active"
