"""Links that let people read one session without an account."""

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.fields import HashField
from history.models.sessions import Session


class ShareLink(models.Model):
    """A link to one session. Only the hash of its token is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = models.ForeignKey(Session, models.CASCADE, "share_links", verbose_name=_("session"))
    token_hash = HashField(max_length=32, unique=True)
    # The last entry it shows. A link that follows shows the path at the time of reading instead.
    leaf = models.PositiveBigIntegerField(_("up to entry"))
    follows = models.BooleanField(_("includes later messages"), default=False)
    # The session's title when the link was made. A link that follows shows the current title.
    title = models.CharField(_("title"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)
    views = models.PositiveIntegerField(_("times opened"), default=0)
    last_viewed_at = models.DateTimeField(_("last opened"), null=True, blank=True)
    # When a view was last written to the audit chain, at most once an hour.
    noted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = _("share link")
        verbose_name_plural = _("share links")
        ordering = ["created_at", "pk"]

    def __str__(self) -> str:
        return f"{self.session_id} {self.created_at:%Y-%m-%d %H:%M}"
