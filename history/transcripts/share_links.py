"""Share links: read-only access to one session without an account, as it was at their creation or as it continues.

The token is computed from the row's id with SECRET_KEY, so that its owner can copy it again. The row has only the hash
of the token, so a copy of the database opens nothing, and existing links outlive a change of SECRET_KEY.
"""

import base64
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from history.access import audit
from history.access.key_cache import hash_of
from history.access.permissions import Viewer
from history.db.transactions import writing
from history.entries import CONVERSATION, Gap
from history.errors import HistoryError
from history.models import Message, Session, ShareLink
from history.record import paths
from history.transcripts.previews import Attachment, find_attachment

SHOWN = frozenset({*CONVERSATION, Gap.kind})  # what a link shows: what was said, and where something is missing
MOST = 50
NOTED_EVERY = timedelta(hours=1)


class SharingOff(HistoryError):
    """The operator has switched share links off."""


class TooManyLinks(HistoryError):
    """The session has as many links as allowed: revoke one first."""


def share(session: Session, *, by: Viewer, follows: bool = False, expires_at: datetime | None = None) -> ShareLink:
    """Create a link to the session as it is now, or as it continues (`follows`)."""
    if not settings.PARLEY_SHARING:
        raise SharingOff("share links are off (PARLEY_SHARING=off)")
    link = ShareLink(session=session, follows=follows, expires_at=expires_at)
    link.token_hash = hash_of(_token(link))
    with writing():
        if links_of(session).count() >= MOST:
            raise TooManyLinks(f"session {session.pk} has {MOST} links")
        link.leaf, link.title = Session.objects.values_list("head", "title").get(pk=session.pk)
        link.save(force_insert=True)
        until = expires_at.isoformat() if expires_at else None
        share_id, leaf = str(link.pk), link.leaf
        audit.record("share", actor=by.pk, session=session.pk, until=until, link=share_id, leaf=leaf, follows=follows)
    return link


def revoke(link: ShareLink, *, by: Viewer) -> bool:
    """False if it was revoked already."""
    with writing():
        shut = ShareLink.objects.filter(pk=link.pk, revoked_at=None).update(revoked_at=timezone.now())
        if shut:
            audit.record("unshare", actor=by.pk, session=link.session_id, link=str(link.pk), views=link.views)
    return bool(shut)


def links_of(session: Session) -> QuerySet[ShareLink]:
    """Links that still work, oldest first."""
    return _open().filter(session=session)


def find_share(token: str) -> ShareLink | None:
    """The link with its session, if both are to be seen just now. Without a valid link, no reason is given."""
    if not settings.PARLEY_SHARING:
        return None
    now = timezone.now()
    kept = Q(session__expires_at=None) | Q(session__expires_at__gt=now) | Q(session__hold=True)
    found = _open().filter(
        kept, token_hash=hash_of(token), session__state=Session.State.OPEN, session__owner__is_active=True
    )
    return found.select_related("session").first()


def note_view(link: ShareLink) -> None:
    """Count the view, and record it in the audit chain once an hour: a popular link must not flood it."""
    now = timezone.now()
    mine = ShareLink.objects.filter(pk=link.pk)
    with writing():
        mine.update(views=F("views") + 1, last_viewed_at=now)
        due = Q(noted_at=None) | Q(noted_at__lte=now - NOTED_EVERY)
        if mine.filter(due).update(noted_at=now):
            audit.record("view_shared", session=link.session_id, link=str(link.pk), views=link.views + 1)


def token_of(link: ShareLink) -> str | None:
    """The token, to be copied again. None if it was created under another SECRET_KEY."""
    token = _token(link)
    return token if hash_of(token) == link.token_hash else None


def leaf_of(link: ShareLink) -> int:
    """The last entry that it shows."""
    return link.session.head if link.follows else link.leaf


def title_of(link: ShareLink) -> str:
    return link.session.title if link.follows else link.title


def shared_attachment(link: ShareLink, name: str) -> Attachment | None:
    """An attachment of an entry that the link shows."""
    leaf = leaf_of(link)
    beside, joins = paths.climb(link.session_id, leaf) if leaf else ([], 0)
    shown = Message.objects.of(link.session).filter(kind__in=SHOWN, is_internal=False)
    places = shown.filter(blobs=name).values_list("seq", "on_path")
    on_the_way = {seq for seq, on_path in places if (on_path and seq <= joins) or seq in beside}
    return find_attachment(shown.filter(seq__in=on_the_way), name)


def _token(link: ShareLink) -> str:
    mac = salted_hmac("history.transcripts.share_links", str(link.pk), algorithm="sha256").digest()
    return base64.urlsafe_b64encode(mac).decode("ascii").rstrip("=")


def _open() -> QuerySet[ShareLink]:
    return ShareLink.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)
