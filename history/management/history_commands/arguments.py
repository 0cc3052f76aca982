"""Shared arguments of the sub-commands: viewer, session, times; description of a session."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser
from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access.permissions import Purpose
from history.access.permissions import sessions_for as sessions_of_viewer
from history.models import COPY_UNFINISHED, REMOVAL_STARTED, ApiKey, Session
from history.record.listing import sessions_beginning_with

Options = Mapping[str, Any]

_AGO = re.compile(r"(\d{1,5})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}


def add_viewer(parser: CommandParser) -> None:
    parser.add_argument("--as", dest="viewer", metavar="USER", help="see only what this user may see")


def add_times(parser: CommandParser) -> None:
    times = "2026-11-01, 2026-11-01T14:00, or 7d, 12h, 30m ago"
    parser.add_argument("--since", type=moment, metavar="TIME", help=times)
    parser.add_argument("--until", type=end_moment, metavar="TIME", help="likewise; a day counts as a whole")


def viewer_of(options: Options) -> AbstractUser | None:
    """None is the operator."""
    return user_named(options["viewer"]) if options["viewer"] else None


def sessions_for(viewer: AbstractUser | None, purpose: Purpose = Purpose.LIST) -> QuerySet[Session]:
    """The operator has the database anyway, so nothing is hidden here: not the trash, not what has expired.

    But a fork that is still being copied is no session yet.
    """
    return Session.objects.exclude(hidden_at=COPY_UNFINISHED) if viewer is None else sessions_of_viewer(viewer, purpose)


def session_named(name: str, viewer: AbstractUser | None, purpose: Purpose = Purpose.LIST) -> Session:
    found = sessions_beginning_with(sessions_for(viewer, purpose), name)
    if not found:
        raise CommandError(_("There is no session %(name)s: `history list` shows them.") % {"name": name})
    if len(found) > 1:
        raise CommandError(_("Several sessions begin with %(name)s: write more of the id.") % {"name": name})
    return found[0]


def user_named(name: str) -> AbstractUser:
    user = get_user_model().objects.filter(username=name).first()
    if user is None:
        raise CommandError(_("There is no user called '%(name)s'.") % {"name": name})
    return user


def key_named(prefix: str) -> ApiKey:
    key = ApiKey.objects.filter(prefix=prefix).first()
    if key is None:
        raise CommandError(_("There is no such key: `keys list` shows the prefixes."))
    return key


def moment(text: str) -> datetime:
    """A time of the server's zone, or so long ago."""
    if ago := _AGO.fullmatch(text):
        return timezone.now() - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else timezone.make_aware(at)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no time: write 2026-11-01, 2026-11-01T14:00, or 7d, 12h, 30m for so long ago"
        ) from None


def end_moment(text: str) -> datetime:
    """A day as a whole, with the hour that it may have more or less."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return moment(text)
    try:
        return moment((date.fromisoformat(text) + timedelta(days=1)).isoformat())
    except (ValueError, OverflowError):
        return moment(text)


def page_size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= 500:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 to 500")
    return int(text)


def describe_session(session: Session) -> dict[str, Any]:
    """A session for programs."""
    return {
        "id": session.pk,
        "title": session.title,
        "owner": session.owner.get_username(),
        "key": session.api_key.prefix if session.api_key else None,
        "source": session.source,
        "client": session.client,
        "agent": session.agent,
        "workspace": session.workspace,
        "model": session.model,
        "messages": session.message_count,
        "tool_calls": session.tool_call_count,
        "errors": session.error_count,
        "input_tokens": session.input_tokens,
        "output_tokens": session.output_tokens,
        "cost": session.cost,
        "version": session.version,
        "head": session.head,
        "trimmed_through": session.trimmed_through,
        "created_at": session.created_at,
        "last_activity_at": session.last_activity_at,
        "expires_at": session.expires_at,
        "hidden_at": session.hidden_at,
        "hold": session.hold,
        "state": state_of(session),
    }


def state_of(session: Session) -> str:
    if session.hold:
        return "held"
    if session.hidden_at == REMOVAL_STARTED:
        return "being removed"
    if session.hidden_at:
        return "hidden"
    return "expired" if session.expires_at and session.expires_at <= timezone.now() else "kept"
