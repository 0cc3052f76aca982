"""Leases of background jobs."""

from django.db import models


class Lease(models.Model):
    """The right of `holder` to run the job `name` until `expires_at`, by the clock of the database."""

    name = models.CharField(max_length=60, primary_key=True)
    holder = models.CharField(max_length=120)
    expires_at = models.DateTimeField()
