"""Export of the personal data of one user as files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AbstractUser
from django.db.models import Q, QuerySet
from django.utils import timezone

from history.access import audit
from history.formats.jsonl import JsonlWriter
from history.models import COPY_UNFINISHED, REMOVAL_STARTED, ApiKey, AuditEvent, ImportJob, Session, ShareLink
from history.privacy.archives import archive_at
from history.privacy.registry import facts_of, holdings
from history.retention.persons import loose_exchanges_of

FORMAT, VERSION = "parley-person", 1

Told = Callable[[int], None]


def export_person(person: AbstractUser, path: Path, *, reason: str = "", progress: Told = lambda count: None) -> Any:
    """Write it, tell the audit chain, and return the manifest."""
    with archive_at(path) as archive:
        writer = JsonlWriter()
        archive.write("sessions.jsonl", _sessions(writer, person, progress))
        archive.files[-1]["rows"] = writer.counts["sessions"]
        archive.write_rows("exchanges.jsonl", (facts_of(row) for row in loose_exchanges_of(person).iterator()))
        archive.write_rows("keys.jsonl", (facts_of(key, without=("secret_hash",)) for key in _keys(person)))
        archive.write_rows("share_links.jsonl", (facts_of(link, without=("token_hash",)) for link in _links(person)))
        archive.write_rows("imports.jsonl", (facts_of(job) for job in ImportJob.objects.filter(owner=person.pk)))
        archive.write_rows("audit_events.jsonl", _events(person))
        for holding in holdings():
            archive.write_rows(f"{holding.name}.jsonl", holding.rows(person))
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "person": {"id": person.pk, "username": person.get_username()},
            "at": timezone.now(),
            "files": list(archive.files),
        }
        archive.write_json("manifest.json", manifest)
    audit.record("person.exported", reason=reason, person=person.pk, count=writer.counts["sessions"])
    return manifest


def sessions_of(person: AbstractUser) -> QuerySet[Session]:
    """All that are there: in the trash, expired and held ones, too."""
    return Session.objects.filter(owner=person.pk).exclude(hidden_at__in=[REMOVAL_STARTED, COPY_UNFINISHED])


def _sessions(writer: JsonlWriter, person: AbstractUser, progress: Told) -> Iterator[bytes]:
    yield writer.head()
    rows = sessions_of(person).select_related("owner", "api_key").order_by("pk")
    for session in rows.iterator(chunk_size=100):
        yield from writer.session(session)
        progress(1)
    yield writer.end()


def _keys(person: AbstractUser) -> QuerySet[ApiKey]:
    return ApiKey.objects.filter(owner=person.pk).order_by("pk")


def _links(person: AbstractUser) -> QuerySet[ShareLink]:
    return ShareLink.objects.filter(session__owner=person.pk).order_by("created_at", "pk")


def _events(person: AbstractUser) -> Iterator[dict[str, Any]]:
    """What they did, what their keys did, and what others did with their sessions, also those that are gone."""
    own = Q(session__in=sessions_of(person).values("pk")) | Q(key__in=_keys(person).values("pk"))
    named = Q(details__contains=f'"owner":{person.pk}') | Q(details__contains=f'"person":{person.pk}')
    for event in AuditEvent.objects.filter(Q(actor=person.pk) | own | named).order_by("seq").iterator():
        if _is_about(event, person):
            yield facts_of(event, without=("id",))


def _is_about(event: AuditEvent, person: AbstractUser) -> bool:
    """`"owner":1` also stands in `"owner":12`."""
    details = json.loads(event.details) if event.details else {}
    named = [details[name] for name in ("owner", "person") if name in details]
    return not named or person.pk in named or event.actor == person.pk
