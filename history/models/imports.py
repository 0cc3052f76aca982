"""Import jobs: uploaded files, their state and the report."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from history.models.access import ApiKey


class ImportJob(models.Model):
    """An import of uploaded files and its report. The files are in the data directory."""

    class State(models.TextChoices):
        UPLOADING = "uploading", _("uploading")
        WAITING = "waiting", _("waiting")
        RUNNING = "running", _("running")
        DONE = "done", _("done")
        FAILED = "failed", _("failed")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="import_jobs")
    # The API key of the upload, if it came through the API.
    api_key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    state = models.CharField(_("state"), max_length=10, choices=State.choices, default=State.UPLOADING)
    files = models.JSONField(_("files"), default=list)  # [{"name": …, "size": …}, …] in the order of the upload
    # The worker that runs it. After a takeover, writes of the previous worker are ignored.
    claim = models.UUIDField(null=True, blank=True)
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    heartbeat_at = models.DateTimeField(_("last heartbeat"), default=timezone.now)
    ended_at = models.DateTimeField(_("ended"), null=True, blank=True)
    bytes_read = models.PositiveBigIntegerField(_("read"), default=0)
    counts = models.JSONField(_("counts"), default=dict)
    # The items of the report, or the first of them if there are very many.
    items = models.JSONField(_("report"), default=list)
    error = models.TextField(_("error"), blank=True)

    class Meta:
        verbose_name = _("import")
        verbose_name_plural = _("imports")
        ordering = ["-created_at"]
        indexes = [
            models.Index(fields=["owner", "-created_at"], name="import_of_owner"),
            models.Index(fields=["created_at"], name="import_waiting", condition=Q(state="waiting")),
        ]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M} {self.state}"
