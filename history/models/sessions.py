"""Sessions: owner, source, counters, position of the head and states; links that share one."""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Protocol, Self
from uuid import UUID

from django.conf import settings
from django.db import connection, models
from django.db.models import PROTECT, F, ForeignKey, Q
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext, gettext_lazy as _

from history.fields import HashField
from history.models import seals
from history.models.access import ApiKey
from history.models.append_only import UndeletableModel, UndeletableQuerySet

_OWN_NEWEST = ["owner", "-last_activity_at", "-id"]


class TitlePolicy(Protocol):
    """Which titles a viewer may see (`history.access.reasons`)."""

    def hide(self, sessions: "Sequence[Session]") -> None: ...

    def visible(self) -> Q: ...


def neutral_name(moment: datetime, *, client: str = "") -> str:
    """The name of a session for viewers who may not see its title."""
    day = date_format(timezone.localtime(moment), "SHORT_DATETIME_FORMAT")
    if client:
        return gettext("Session of %(date)s (%(client)s)") % {"date": day, "client": client}
    return gettext("Session of %(date)s") % {"date": day}


class SessionQuerySet(UndeletableQuerySet["Session"]):
    """Sessions as a viewer may see them. Titles that the title policy hides are replaced when the rows are read."""

    _title_rule: TitlePolicy | None = None

    def with_titles(self, rule: TitlePolicy) -> "SessionQuerySet":
        rows = self.all()
        rows._title_rule = rule
        return rows

    def whose_title_is_visible(self) -> "SessionQuerySet":
        return self.filter(self._title_rule.visible()) if self._title_rule else self

    def open(self) -> Self:
        """Sessions that are not deleted, being removed or being copied. `access.permissions` adds who may see them."""
        return self.filter(state=Session.State.OPEN)

    def deleted(self) -> Self:
        return self.filter(state=Session.State.DELETED)

    def removable(self) -> Self:
        """Whole sessions, open or in the trash, without a hold."""
        return self.filter(state__in=Session.WHOLE, hold=False)

    def being_removed(self) -> Self:
        return self.filter(state=Session.State.REMOVING)

    def lock(self, pk: UUID) -> None:
        """Lock one row until the transaction ends, without reading it."""
        if connection.features.has_select_for_update:  # SQLite has one writer at a time anyway
            list(self.select_for_update().order_by().filter(pk=pk).values_list("pk"))

    def _clone(self) -> Self:
        rows = super()._clone()  # type: ignore[misc]
        rows._title_rule = self._title_rule
        return rows  # type: ignore[no-any-return]

    def _fetch_all(self) -> None:
        is_fresh = self._result_cache is None
        super()._fetch_all()
        if is_fresh and self._title_rule is not None and self._result_cache:
            self._title_rule.hide([row for row in self._result_cache if isinstance(row, Session)])

    def iterator(self, chunk_size: int | None = None) -> "Iterator[Session]":
        rows = super().iterator(chunk_size=chunk_size)
        while page := list(islice(rows, 500)):
            if self._title_rule is not None:
                self._title_rule.hide([row for row in page if isinstance(row, Session)])
            yield from page


class Session(UndeletableModel):
    """One conversation. `version` counts its entries, `head` is the entry that the next one follows."""

    class Source(models.TextChoices):
        CHAT = "chat", _("chat")
        RELAY = "relay", _("relay")
        IMPORT = "import", _("import")
        NOTEBOOK = "notebook", _("notebook")

    class State(models.TextChoices):
        OPEN = "open", _("open")
        DELETED = "deleted", _("deleted")  # In the trash. The user may restore it until a purge removes it.
        # A fork or restore whose entries are still being copied. A purge removes it if the copying was abandoned.
        INCOMPLETE = "incomplete", _("incomplete copy")
        # Its rows are being removed. The next purge finishes that. It cannot be restored or held.
        REMOVING = "removing", _("removal started")

    WHOLE = (State.OPEN, State.DELETED)
    COUNTERS = ("message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = ForeignKey(settings.AUTH_USER_MODEL, PROTECT, "chat_sessions", verbose_name=_("owner"), db_index=False)
    api_key = ForeignKey(ApiKey, PROTECT, "sessions", verbose_name=_("API key"), null=True, blank=True, db_index=False)
    source = models.CharField(_("source"), max_length=10, choices=Source.choices, default=Source.CHAT)
    client = models.CharField(_("client"), max_length=60, blank=True)
    recognised_by = models.CharField(_("recognised by"), max_length=20, blank=True)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    workspace = models.CharField(_("workspace"), max_length=255, blank=True)
    title = models.CharField(_("title"), max_length=200, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    # Their indexes are partial: most rows have none, and SQLite ignores an index in which one value (NULL) fills it.
    parent = ForeignKey(
        "self", models.SET_NULL, "children", verbose_name=_("parent session"), null=True, blank=True, db_index=False
    )
    parent_call = models.CharField(_("parent call"), max_length=200, blank=True)
    forked_from = ForeignKey(
        "self", models.SET_NULL, "forks", verbose_name=_("forked from"), null=True, blank=True, db_index=False
    )
    forked_at = models.PositiveBigIntegerField(_("forked after entry"), default=0)

    message_count = models.PositiveIntegerField(_("messages"), default=0)
    tool_call_count = models.PositiveIntegerField(_("tool calls"), default=0)
    error_count = models.PositiveIntegerField(_("errors"), default=0)
    input_tokens = models.PositiveBigIntegerField(_("tokens read"), default=0)
    output_tokens = models.PositiveBigIntegerField(_("tokens written"), default=0)
    cost = models.DecimalField(_("cost"), max_digits=14, decimal_places=6, default=0)

    version = models.PositiveBigIntegerField(_("version"), default=0)
    head = models.PositiveBigIntegerField(_("head"), default=0)
    last_seal = HashField(max_length=32, default=bytes)
    trimmed_through = models.PositiveBigIntegerField(_("trimmed through"), default=0)
    anchor_seal = HashField(max_length=32, default=bytes)
    # The texts up to here were dropped by policy, except instructions, tools and notebooks that still applied.
    dropped_through = models.PositiveBigIntegerField(default=0)
    # A keyed hash of its first title (`seals.title_mark_of`), empty if the title is taken from its entries.
    given_title = HashField(max_length=16, default=bytes)
    # A hash of owner, key, source and first title, compared by `verification`.
    begin_seal = HashField(max_length=32, default=bytes)
    # Facts about the head entry, so that the next append does not have to read it.
    head_fingerprint = HashField(max_length=16, default=bytes)
    head_has_open_calls = models.BooleanField(default=False)

    created_at = models.DateTimeField(_("created"), default=timezone.now)
    last_activity_at = models.DateTimeField(_("last activity"), default=timezone.now)
    # When an entry was last stored, by the server's clock. The activity of an import may be years ago.
    stored_at = models.DateTimeField(_("stored"), default=timezone.now)
    # When anything about it last changed, by the server's clock. Incremental exports compare it.
    changed_at = models.DateTimeField(_("changed"), default=timezone.now)
    # When its owner last set title, agent, pin or archive. A restore keeps the newer of two copies.
    marked_at = models.DateTimeField(_("marked"), null=True, blank=True)
    pinned_at = models.DateTimeField(_("pinned"), null=True, blank=True)
    archived_at = models.DateTimeField(_("archived"), null=True, blank=True)
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.OPEN)
    # When it was deleted; null unless the state is `deleted` or `removing`.
    hidden_at = models.DateTimeField(_("hidden"), null=True, blank=True)
    hold = models.BooleanField(_("under hold"), default=False)
    # The newest audit event of an access by others that its owner has seen (`reasons.unseen_readers`).
    readings_seen = models.PositiveBigIntegerField(default=0)
    expires_at = models.DateTimeField(_("kept until"), null=True, blank=True)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)

    objects = models.Manager.from_queryset(SessionQuerySet)()  # type: ignore[misc]

    class Meta(UndeletableModel.Meta):
        verbose_name = _("session")
        verbose_name_plural = _("sessions")
        # Beside `view_session`, which shows no text, and `delete_session`: history.access.permissions has the table.
        permissions = [
            ("read_session", _("Can read sessions of other users")),
            ("export_session", _("Can export sessions of other users")),
            ("hold_session", _("Can hold sessions, and see hidden ones under hold")),
        ]
        ordering = ["-last_activity_at", "-id"]
        indexes = [
            models.Index(fields=["-last_activity_at", "-id"], name="session_newest"),
            models.Index(fields=_OWN_NEWEST, name="session_newest_of_owner"),
            models.Index(fields=["api_key", "-last_activity_at", "-id"], name="session_newest_of_key"),
            models.Index(fields=["source", "-last_activity_at", "-id"], name="session_newest_of_source"),
            models.Index(fields=_OWN_NEWEST, name="session_pinned", condition=Q(pinned_at__isnull=False)),
            models.Index(fields=_OWN_NEWEST, name="session_archived", condition=Q(archived_at__isnull=False)),
            models.Index(fields=["parent"], name="session_children", condition=Q(parent__isnull=False)),
            models.Index(fields=["forked_from"], name="session_forks", condition=Q(forked_from__isnull=False)),
            models.Index(fields=["expires_at"], name="session_expiry", condition=Q(expires_at__isnull=False)),
            models.Index(fields=["hidden_at"], name="session_trash", condition=Q(state="deleted")),
            models.Index(fields=["-last_activity_at", "-id"], name="session_held", condition=Q(hold=True)),
            models.Index(fields=["owner", "hidden_at"], name="session_deleted", condition=Q(state="deleted")),
            models.Index(fields=["stored_at"], name="session_incomplete", condition=Q(state="incomplete")),
            models.Index(fields=["id"], name="session_removing", condition=Q(state="removing")),
            # Includes the order of lists. Without it SQLite walks all sessions of the owner in that order.
            models.Index(fields=["agent", "workspace", "-last_activity_at", "-id"], name="session_of_workspace"),
        ]
        constraints = [
            models.CheckConstraint(condition=Q(head__lte=F("version")), name="session_head_exists"),
            models.CheckConstraint(condition=Q(trimmed_through__lte=F("version")), name="session_trim_in_range"),
            models.CheckConstraint(condition=Q(dropped_through__lte=F("version")), name="session_drop_in_range"),
            models.CheckConstraint(
                condition=Q(state__in=["open", "incomplete"], hidden_at__isnull=True)
                | Q(state__in=["deleted", "removing"], hidden_at__isnull=False),
                name="session_deletion_has_a_time",
            ),
        ]

    def __str__(self) -> str:
        """A name without the title, because viewers without permission to read the session see it."""
        return neutral_name(self.created_at, client=self.client)

    def hide_title(self) -> None:
        self._hidden_title: str | None = self.__dict__.get("title")
        self.title = str(self)

    @property
    def is_title_hidden(self) -> bool:
        return "_hidden_title" in self.__dict__

    def reveal_title(self) -> None:
        """Undo `hide_title` for a viewer who was granted access after the row was read."""
        if not self.is_title_hidden:
            return
        title = self.__dict__.pop("_hidden_title")
        if title is None:
            self.refresh_from_db(fields=["title"])
        else:
            self.title = title

    def save(self, *args: Any, **kwargs: Any) -> None:
        if self._state.adding:
            self.seal_beginning(given_title=self.title)
        super().save(*args, **kwargs)

    def seal_beginning(self, *, given_title: str) -> None:
        self.given_title = seals.title_mark_of(self.pk, given_title)
        self.begin_seal = self.expected_begin_seal()

    def expected_begin_seal(self) -> bytes:
        title = bytes(self.given_title).hex()
        return seals.audit_seal_of(b"begin", self.pk, self.owner_id, self.api_key_id, self.source, title)

    def get_absolute_url(self) -> str:
        return reverse("session", args=[self.pk])

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class ShareLink(models.Model):
    """A link to read one session without an account. Only the hash of its token is stored."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    session = ForeignKey(Session, models.CASCADE, "share_links", verbose_name=_("session"))
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
