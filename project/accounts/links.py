"""One-time sign-in links. The database stores only their hashes."""

import hashlib
import secrets
from datetime import timedelta

from django.conf import settings
from django.urls import reverse
from django.utils import timezone

from project.accounts.models import SignInLink, User

HOURS = 24
DELETED_AFTER = timedelta(days=30)


def create_link(user: User, *, created_by: User | None = None) -> str:
    """Return the URL. It cannot be shown a second time."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    SignInLink.objects.filter(expires_at__lt=now - DELETED_AFTER).delete()
    end = now + timedelta(hours=HOURS)
    SignInLink.objects.create(token_hash=hash_of(token), user=user, created_by=created_by, expires_at=end)
    return settings.PARLEY_URL + reverse("accounts:link", args=[token])


def find_link(token: str) -> SignInLink | None:
    """A link that is still valid. Looking does not use it up."""
    valid = SignInLink.objects.filter(used_at=None, expires_at__gt=timezone.now(), user__is_active=True)
    return valid.select_related("user").filter(token_hash=hash_of(token)).first()


def claim_link(token: str) -> SignInLink | None:
    """Use the link up. If two requests come at once, the row count decides which one signs in."""
    link = find_link(token)
    is_first = link and SignInLink.objects.filter(pk=link.pk, used_at=None).update(used_at=timezone.now())
    return link if is_first else None


def hash_of(token: str) -> str:
    # Plain SHA-256 is enough for a token of 256 random bits.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
