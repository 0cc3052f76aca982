"""One-time sign-in links: made here, claimed here, known to the database by their hash alone."""

import hashlib
import secrets
from datetime import timedelta

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from project.accounts.models import SignInLink, User

HOURS = 24
FORGOTTEN_AFTER = timedelta(days=30)


def create_link(user: User, *, created_by: User | None = None) -> str:
    """The whole address; nobody can show it a second time."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    SignInLink.objects.filter(expires_at__lt=now - FORGOTTEN_AFTER).delete()
    SignInLink.objects.create(
        token_hash=hash_of(token), user=user, created_by=created_by, expires_at=now + timedelta(hours=HOURS)
    )
    return settings.PARLEY_URL + reverse("accounts:link", args=[token])


def find_link(token: str) -> SignInLink | None:
    """A link that would still open. Looking does not spend it."""
    return (
        SignInLink.objects.select_related("user")
        .filter(token_hash=hash_of(token), used_at=None, expires_at__gt=timezone.now(), user__is_active=True)
        .first()
    )


def claim_link(token: str) -> SignInLink | None:
    """Spend the link. Of two people who press at the same moment, the row count lets one in."""
    link = find_link(token)
    if link is None:
        return None
    claimed = SignInLink.objects.filter(pk=link.pk, used_at=None).update(used_at=timezone.now())
    return link if claimed == 1 else None


def hash_of(token: str) -> str:
    # Plain SHA-256 is enough: a token has 256 random bits, so there is nothing to guess and nothing to salt.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
