"""What was deleted since an earlier export, as the audit chain tells it: an id and a time, nothing else is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from uuid import UUID

from history.exporting.cursors import Mark
from history.exporting.selection import Chosen, exportable, was_selected
from history.models import AuditEvent, Session

PAGE = 500
DELETING = ("hide", "remove")


def deleted_since(chosen: Chosen, *, since: Mark, until: Mark) -> Iterator[tuple[UUID, datetime]]:
    """Each session once, at the last time that it was deleted; such as came back are none."""
    if since.at is None:
        return
    events = AuditEvent.objects.filter(seq__gt=since.event, seq__lte=until.event, action__in=DELETING)
    walk = events.exclude(session=None).order_by("seq").iterator(chunk_size=PAGE)
    while page := list(islice(walk, PAGE)):
        last = {event.session: event for event in page if event.session}
        there = {row.pk: row for row in Session.objects.filter(pk__in=last).only("owner", "api_key")}
        served = set(exportable(chosen.viewer).filter(pk__in=last).values_list("pk", flat=True))
        for gone, event in last.items():
            whose = _whose(event, there.get(gone))
            if gone not in served and was_selected(chosen.viewer, chosen.selection, gone, **whose):
                yield gone, event.at


def _whose(event: AuditEvent, row: Session | None) -> dict[str, int | None]:
    """From its row as long as that is there, then from the event of its removal."""
    if row is not None:
        return {"owner": row.owner_id, "key": row.api_key_id}
    details = json.loads(event.details or "{}")
    return {"owner": details.get("owner"), "key": details.get("by_key")}
