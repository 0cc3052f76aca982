"""Runs (turns that are being answered) and queued messages, with their queries."""

import uuid
from collections.abc import Collection, Iterable
from uuid import UUID

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.db.parameters import among
from history.db.prepared import prepared
from history.db.transactions import writing
from history.models import Exchange, Session
from history.record import exchanges
from history.record.paths import is_on_way

# The role of a call to a model that writes a summary. It is not an answer of the conversation.
SUMMARISER = "summariser"
MOST_RECENT = 50  # how many ended runs of a session are looked at to recognise late frames
# The error of a tool command that was not carried out to its end. The errors of others are classes of exceptions.
INTERRUPTED = "Interrupted"


class RunQuerySet(models.QuerySet["Run"]):
    def running(self) -> "RunQuerySet":
        """Runs of all processes that have not ended."""
        return self.filter(ended_at=None)

    def ended(self) -> "RunQuerySet":
        return self.filter(ended_at__isnull=False)

    def running_in(self, session_id: UUID) -> "list[Run]":
        """Oldest first."""
        return _running_in(session_id)

    def recently_ended_in(self, session_id: UUID) -> set[UUID]:
        ended = self.ended().filter(session=session_id).order_by("-started_at")
        return set(ended.values_list("pk", flat=True)[:MOST_RECENT])

    def lost_among(self, run_ids: Collection[UUID]) -> list[UUID]:
        lost = self.filter(pk__in=run_ids, outcome=Run.Outcome.LOST)
        return list(lost.values_list("pk", flat=True)) if run_ids else []

    def sessions_running(self, session_ids: Iterable[UUID]) -> set[UUID]:
        wanted = list(session_ids)
        return set(_sessions_running(wanted)) if wanted else set()


class Run(models.Model):
    """One turn of an agent: any number of calls to models and tools, until an outcome."""

    class Outcome(models.TextChoices):
        DONE = "done", _("done")
        WAITING = "waiting", _("waiting for an answer")
        LIMIT = "limit", _("stopped at a limit")
        STOPPED = "stopped", _("stopped")
        FAILED = "failed", _("failed")
        LOST = "lost", _("lost")

        @property
        def is_success(self) -> bool:
            """Whether queued messages are sent or wait for the user; after any other outcome they are held."""
            return self in (Run.Outcome.DONE, Run.Outcome.LIMIT, Run.Outcome.WAITING)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # Without an index of its own: `run_of_session` begins with it.
    session = models.ForeignKey(
        Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="+", db_index=False
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.CASCADE, related_name="+", db_index=False
    )
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=160, blank=True)
    # `origin` is the entry that it answers, `leaf` its own last entry, wherever the head of the session is.
    origin = models.PositiveBigIntegerField(_("answers entry"), default=0)
    leaf = models.PositiveBigIntegerField(_("leaf"), default=0)
    started_at = models.DateTimeField(_("started"), default=timezone.now)
    heartbeat_at = models.DateTimeField(_("last heartbeat"), default=timezone.now)
    stop_requested_at = models.DateTimeField(_("stop requested"), null=True, blank=True)
    compression_asked_at = models.DateTimeField(_("summary requested"), null=True, blank=True)
    summarising_at = models.DateTimeField(_("summarising since"), null=True, blank=True)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    outcome = models.CharField(_("outcome"), max_length=10, choices=Outcome.choices, blank=True)
    error = models.TextField(_("error"), blank=True)
    # The message that this run answers was sent from the queue when that run ended.
    follows = models.UUIDField(_("follows run"), null=True, blank=True)
    # The process that executes it (`relay.runtime.process_locks`).
    process = models.CharField(_("process"), max_length=40, blank=True)

    objects = RunQuerySet.as_manager()
    has_queue = True  # whether messages waited in the session when the run ended

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ["-started_at"]
        constraints = [
            models.CheckConstraint(
                condition=Q(ended_at__isnull=True, outcome="") | (Q(ended_at__isnull=False) & ~Q(outcome="")),
                name="run_end_has_an_outcome",
            )
        ]
        indexes = [
            models.Index(fields=["session", "started_at"], name="run_of_session"),
            models.Index(fields=["owner"], name="run_running_of_owner", condition=Q(ended_at__isnull=True)),
            models.Index(fields=["heartbeat_at"], name="run_running", condition=Q(ended_at__isnull=True)),
            models.Index(fields=["ended_at"], name="run_ended", condition=Q(ended_at__isnull=False)),
            models.Index(fields=["follows"], name="run_follows", condition=Q(follows__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.session_id} {self.outcome or 'running'}"

    def find_open_exchange(self) -> Exchange | None:
        """The answer that this run waits for. Another run may have begun at the same entry after it."""
        waiting = Exchange.objects.filter(session=self.session_id).running().filter(after=self.leaf)
        calls = self._own_calls(waiting.order_by("started_at"))
        return next((call for call in calls if call.metadata.get("role") != SUMMARISER), None)

    def find_lost_answer(self) -> int | None:
        """The entry that was stored from the partial answer of a run whose process died."""
        swept = Exchange.objects.filter(session=self.session_id).filter(
            after=self.leaf, end_reason=exchanges.SERVER_LOST
        )
        return self._own_calls(swept).values_list("message__seq", flat=True).first()

    def _own_calls(self, calls: models.QuerySet[Exchange]) -> models.QuerySet[Exchange]:
        """Calls that began after the run. After the clock was set back: all, unless another run answers there."""
        begun = calls.filter(started_at__gte=self.started_at)
        if self.started_at <= timezone.now() or begun.exists():
            return begun
        others = Run.objects.running().filter(session=self.session_id, leaf=self.leaf).exclude(pk=self.pk)
        return begun if others.exists() else calls


@prepared
def stored_run(run_id: UUID) -> RunQuerySet:
    return Run.objects.filter(pk=run_id)


@prepared
def _running_in(session_id: UUID) -> RunQuerySet:
    return Run.objects.running().filter(session=session_id).order_by("started_at")


@prepared
def _sessions_running(session_ids: list[UUID]) -> models.QuerySet[Run, UUID]:
    return Run.objects.running().filter(session__in=among(session_ids)).order_by().values_list("session", flat=True)


@prepared
def _queue_of(session_id: UUID) -> "QueuedMessageQuerySet":
    return QueuedMessage.objects.filter(session=session_id).order_by("pk")


class QueuedMessageQuerySet(models.QuerySet["QueuedMessage"]):
    def waiting_in(self, session_id: UUID) -> "list[QueuedMessage]":
        """Oldest first."""
        return _queue_of(session_id)

    def followers_of(self, session_id: UUID, leaf: int) -> "list[QueuedMessage]":
        """The queue of the conversation that ends at `leaf`, oldest first, without messages for other branches."""
        return [row for row in _queue_of(session_id) if is_on_way(session_id, row.after, to=leaf)]

    def sendable(self, session_id: UUID, leaf: int) -> "list[QueuedMessage]":
        """The same without those that were refused."""
        return [row for row in self.followers_of(session_id, leaf) if not row.error]

    def hold(self, session_id: UUID, leaf: int) -> None:
        """A run did not end well: what waits for it is not sent by itself."""
        if waiting := [row.pk for row in self.followers_of(session_id, leaf)]:
            self.filter(pk__in=waiting, held_at=None, claimed_at=None).update(held_at=timezone.now())

    def release_all(self, session_id: UUID, leaf: int) -> None:
        """The owner sends the whole queue: it continues the conversation on the screen, also from other branches."""
        rows = self.filter(session=session_id)
        rows.update(held_at=None, error="")
        rows.exclude(pk__in=[row.pk for row in self.followers_of(session_id, leaf)]).update(after=leaf)

    def hold_with_error(self, error: str) -> int:
        """These were refused, or their tool command was not carried out to its end: they wait for their owner."""
        return self.update(claimed_at=None, process="", held_at=timezone.now(), error=error)

    def hold_claimed(self) -> set[UUID]:
        """The same for tool commands of processes that are gone. The sessions that they belong to."""
        claimed = dict(self.filter(claimed_at__isnull=False).values_list("pk", "session"))
        if claimed:
            with writing():
                self.filter(claimed_at__isnull=False, pk__in=claimed).hold_with_error(INTERRUPTED)
        return set(claimed.values())


class QueuedMessage(models.Model):
    """A message written during an answer, and sent when that has ended (docs/internals/runs.md, The queue)."""

    session = models.ForeignKey(Session, verbose_name=_("session"), on_delete=models.CASCADE, related_name="+")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("owner"), on_delete=models.CASCADE, related_name="+"
    )
    text = models.TextField(_("text"))
    attachments = models.JSONField(_("attachments"), default=list, blank=True)
    agent = models.CharField(_("agent"), max_length=100, blank=True)
    model = models.CharField(_("model"), max_length=160, blank=True)
    # The entry that it follows. Runs of other branches do not send it.
    after = models.PositiveBigIntegerField(_("after entry"), default=0)
    held_at = models.DateTimeField(_("held since"), null=True, blank=True)
    # Why it was refused: the class of the error. Messages after it are still sent.
    error = models.CharField(_("error"), max_length=40, blank=True)
    # Set while a process runs the tool command in `text`. The row is deleted when the result is recorded.
    claimed_at = models.DateTimeField(_("running since"), null=True, blank=True)
    # That process (`relay.runtime.process_locks`).
    process = models.CharField(_("process"), max_length=40, blank=True)
    created_at = models.DateTimeField(_("written"), default=timezone.now)

    objects = QueuedMessageQuerySet.as_manager()

    class Meta:
        verbose_name = _("waiting message")
        verbose_name_plural = _("waiting messages")
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.text[:60]
