"""Access log of a session, as its owner sees it: who read, exported or shared it, when and why.

It is read from the audit chain, which has ids; names are current, and deleted users have none. Holds are not shown.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth import get_user_model
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from history.access.reasons import EXPORTED, READ
from history.db.transactions import writing
from history.models import ApiKey, AuditEvent, Session

ACTIONS = (READ, EXPORTED, "share", "unshare", "view_shared")
MOST = 20


class AccessRecord(NamedTuple):
    """`who` is empty for visitors with a share link."""

    at: datetime
    action: str
    who: str
    reason: str

    @property
    def words(self) -> str:
        words = {
            READ: _("%(who)s read this session"),
            EXPORTED: _("%(who)s exported this session"),
            "share": _("%(who)s created a share link"),
            "unshare": _("%(who)s revoked a share link"),
            "view_shared": _("A share link was opened"),
        }
        return words[self.action] % {"who": self.who}


def who_read(session: Session) -> tuple[AccessRecord, ...]:
    """The newest first."""
    events = list(AuditEvent.objects.filter(session=session.pk, action__in=ACTIONS).order_by("-seq")[:MOST])
    names = _names(events)
    return tuple(AccessRecord(one.at, one.action, names[one.actor, one.key], one.reason) for one in events)


def unseen_readers(session: Session) -> tuple[str, ...]:
    """Names of users who read or exported the session since its owner last looked, the newest first."""
    read = AuditEvent.objects.filter(session=session.pk, action__in=(READ, EXPORTED), seq__gt=session.readings_seen)
    events = list(read.order_by("-seq")[:MOST])
    names = _names(events)
    return tuple(dict.fromkeys(names[event.actor, event.key] for event in events))


def mark_readings_seen(session: Session) -> None:
    newest = AuditEvent.objects.filter(session=session.pk).aggregate(newest=Max("seq"))["newest"] or 0
    with writing():
        Session.objects.filter(pk=session.pk).update(readings_seen=newest, changed_at=timezone.now())
    session.readings_seen = newest


def _names(events: Sequence[AuditEvent]) -> dict[tuple[int | None, int | None], str]:
    who = {(event.actor, event.key) for event in events}
    people = get_user_model().objects.in_bulk([actor for actor, _key in who if actor])
    keys = ApiKey.objects.select_related("owner").in_bulk([key for _actor, key in who if key])
    names: dict[tuple[int | None, int | None], str] = {(pk, None): str(person) for pk, person in people.items()}
    for pk, key in keys.items():
        name = _("The key %(prefix)s of %(owner)s") % {"prefix": key.prefix, "owner": key.owner}
        names |= {(actor, pk): name for actor, other in who if other == pk}
    return {one: names.get(one, _("Deleted user")) for one in who}
