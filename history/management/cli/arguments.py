"""Shared arguments of the sub-commands: viewer, session, filters, times and page size."""

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access.permissions import Purpose, sessions_for as sessions_of_viewer
from history.models import ApiKey, Session
from history.record.listing import sessions_beginning_with
from history.search.queries import parse_time

Options = Mapping[str, Any]

_AGO = re.compile(r"(\d{1,5})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def add_viewer(parser: CommandParser) -> None:
    parser.add_argument("--as", dest="viewer", metavar="USER", help="use the permissions of this user")


def add_times(parser: CommandParser, *, prefix: str = "", about: str = "") -> None:
    times = f"{about}2026-11-01, 2026-11-01T14:00, or 7d, 12h, 30m ago"
    parser.add_argument(f"--{prefix}since", type=time_argument, metavar="TIME", help=times)
    end_argument = partial(time_argument, is_end=True)
    parser.add_argument(
        f"--{prefix}until", type=end_argument, metavar="TIME", help="same formats; a date includes the whole day"
    )


def require_reason(options: Options) -> None:
    if not options["reason"].strip():
        raise CommandError(_("A reason is required. Add --reason."), returncode=2)


def viewer_of(options: Options) -> AbstractUser | None:
    """None is the operator."""
    return user_named(options["viewer"]) if options["viewer"] else None


def sessions_for(viewer: AbstractUser | None, purpose: Purpose = Purpose.LIST) -> QuerySet[Session]:
    """The operator has the database, so the trash and expired sessions are included, but no unfinished fork."""
    if viewer is None:
        return Session.objects.exclude(state=Session.State.INCOMPLETE)
    return sessions_of_viewer(viewer, purpose)


def session_named(name: str, viewer: AbstractUser | None, purpose: Purpose = Purpose.LIST) -> Session:
    matches = sessions_beginning_with(sessions_for(viewer, purpose), name)
    if not matches:
        raise CommandError(_("There is no session %(name)s. `history list` shows all sessions.") % {"name": name})
    if len(matches) > 1:
        raise CommandError(_("Several sessions begin with %(name)s. Write more characters of the id.") % {"name": name})
    return matches[0]


def user_named(name: str) -> AbstractUser:
    user = get_user_model().objects.filter(username=name).first()
    if user is None:
        raise CommandError(_("There is no user called '%(name)s'.") % {"name": name})
    return user


def key_named(prefix: str) -> ApiKey:
    key = ApiKey.objects.filter(prefix=prefix).first()
    if key is None:
        raise CommandError(_("There is no such key. `keys list` shows the prefixes."))
    return key


def time_argument(text: str, *, is_end: bool = False) -> datetime:
    """A time in the server's zone, or a duration ago."""
    if ago := _AGO.fullmatch(text):
        return timezone.now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        return parse_time(text, zone=timezone.get_current_timezone(), is_end=is_end).astimezone(UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a valid time: write 2026-11-01, 2026-11-01T14:00, or 7d, 12h, 30m for a time ago"
        ) from None


def page_size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 500:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 to 500")
    return int(text)
