"""The one table of the house itself: who may do the work that must be done once."""

from django.db import models


class Lease(models.Model):
    """`holder` may do what `name` says until `expires_at`, by the database's clock. See `project.background.leases`."""

    name = models.CharField(max_length=60, primary_key=True)
    holder = models.CharField(max_length=120)
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name}: {self.holder}"
