"""Blobs that nobody refers to any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Exists, OuterRef, QuerySet

from history.db.transactions import writing
from history.models import Blob, Exchange, Message
from history.models.append_only import writable

BATCH = 200
# An attachment is stored before the entry that names it is written: young blobs are left alone.
GRACE = timedelta(hours=1)


def orphaned_blobs(now: datetime) -> QuerySet[Blob]:
    return _unused().filter(created_at__lt=now - GRACE)


def _unused() -> QuerySet[Blob]:
    linked = Message.blobs.through.objects.filter(blob_id=OuterRef("pk"))
    used = Exchange.blobs.through.objects.filter(blob_id=OuterRef("pk"))
    return Blob.objects.filter(~Exists(linked), ~Exists(used))


def remove_orphaned_blobs(now: datetime) -> Iterator[int]:
    last = ""
    while ids := list(orphaned_blobs(now).filter(pk__gt=last).order_by("pk").values_list("pk", flat=True)[:BATCH]):
        last = ids[-1]
        yield _remove(ids, orphaned_blobs(now))


def remove_at_once(names: Sequence[str]) -> Iterator[int]:
    """Those among these that nobody refers to any more, however young: what they belonged to was erased."""
    for start in range(0, len(names), BATCH):
        yield _remove(names[start : start + BATCH], _unused())


def _remove(ids: Sequence[str], going: QuerySet[Blob]) -> int:
    """Look again under a lock: a writer may have used one of them since."""
    with writing():
        locked = Blob.objects.filter(pk__in=ids).order_by("pk").values_list("pk", flat=True)
        skips = connection.features.has_select_for_update_skip_locked
        free = list(locked.select_for_update(skip_locked=True) if skips else locked)
        unused = list(going.filter(pk__in=free).values_list("pk", flat=True))
        rows = Blob.objects.filter(pk__in=unused)
        return writable(rows)._raw_delete(rows.db) if unused else 0
