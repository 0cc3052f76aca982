"""Personal data of one user: the registry of what each app stores, and its export as files with a manifest."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from django.contrib.auth.models import AbstractUser
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Model, Q, QuerySet
from django.utils import timezone

from history.access import audit
from history.entries import JsonObject
from history.errors import HistoryError
from history.formats.jsonl import JsonlWriter
from history.models import ApiKey, AuditEvent, ImportJob, Session, ShareLink
from history.retention.removal import loose_exchanges_of


@dataclass(frozen=True, slots=True)
class PersonalData:
    """`rows` are exported; `erase` removes or anonymises them and returns their number.

    Data is erased in the order of registration. Rows `of_sessions` are counted before the sessions are erased, because
    they go with them; the account itself comes `last`. `shut` is called before anything is removed: afterwards no new
    rows can come.
    """

    name: str
    rows: Callable[[AbstractUser], Iterable[JsonObject]]
    erase: Callable[[AbstractUser], int]
    of_sessions: bool = False
    last: bool = False
    shut: Callable[[AbstractUser], object] = lambda person: None


_registered: dict[str, PersonalData] = {}


def register_personal_data(data: PersonalData) -> None:
    _registered[data.name] = data


def registered_data() -> list[PersonalData]:
    return sorted(_registered.values(), key=lambda data: data.last)


def rows_of_table(name: str, model: type[Model], *, of: str, secrets: tuple[str, ...] = ()) -> PersonalData:
    """Rows of a table that belong to a user and are erased with the account."""

    def rows(person: AbstractUser) -> Iterator[JsonObject]:
        for row in model._default_manager.filter(**{of: person}).order_by("pk").iterator():
            yield columns_of(row, without=(of, *secrets))

    def erase(person: AbstractUser) -> int:
        return model._default_manager.filter(**{of: person}).delete()[0]

    return PersonalData(name, rows, erase)


def columns_of(row: Model, *, without: tuple[str, ...] = ()) -> JsonObject:
    fields = [field for field in row._meta.concrete_fields if field.name not in without]
    return {field.name: field.value_from_object(row) for field in fields}


FORMAT, VERSION = "parley-person", 1

Progress = Callable[[int], None]


def export_person(
    person: AbstractUser, path: Path, *, reason: str = "", progress: Progress = lambda count: None
) -> JsonObject:
    """Write the archive, record it in the audit chain, and return the manifest."""
    with archive_at(path) as archive:
        writer = JsonlWriter()
        archive.write("sessions.jsonl", _sessions(writer, person, progress))
        archive.files[-1]["rows"] = writer.counts["sessions"]
        archive.write_rows("exchanges.jsonl", (columns_of(row) for row in loose_exchanges_of(person).iterator()))
        archive.write_rows("keys.jsonl", (columns_of(key, without=("secret_hash",)) for key in _keys(person)))
        archive.write_rows("share_links.jsonl", (columns_of(link, without=("token_hash",)) for link in _links(person)))
        archive.write_rows("imports.jsonl", (columns_of(job) for job in ImportJob.objects.filter(owner=person.pk)))
        archive.write_rows("audit_events.jsonl", _events(person))
        for data in registered_data():
            archive.write_rows(f"{data.name}.jsonl", data.rows(person))
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
    """Also sessions in the trash, expired and held ones."""
    return Session.objects.filter(owner=person.pk, state__in=Session.WHOLE)


def _sessions(writer: JsonlWriter, person: AbstractUser, progress: Progress) -> Iterator[bytes]:
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


def _events(person: AbstractUser) -> Iterator[JsonObject]:
    """Events by the user, by their keys, and about their sessions, also removed ones."""
    own = Q(session__in=sessions_of(person).values("pk")) | Q(key__in=_keys(person).values("pk"))
    named = Q(details__contains=f'"owner":{person.pk}') | Q(details__contains=f'"person":{person.pk}')
    for event in AuditEvent.objects.filter(Q(actor=person.pk) | own | named).order_by("seq").iterator():
        if _is_about(event, person):
            yield columns_of(event, without=("id",))


def _is_about(event: AuditEvent, person: AbstractUser) -> bool:
    """Check the details: the query matches `"owner":1` also in `"owner":12`."""
    details = json.loads(event.details) if event.details else {}
    named = [details[name] for name in ("owner", "person") if name in details]
    return not named or person.pk in named or event.actor == person.pk


class CannotWrite(HistoryError):
    """The text names the path and the reason."""


class PersonalArchive:
    def __init__(self, open_file: Callable[[str], AbstractContextManager[IO[bytes]]]) -> None:
        self._open = open_file
        self.files: list[dict[str, object]] = []

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        digest, size = hashlib.sha256(), 0
        with self._open(name) as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        self.files.append({"name": name, "bytes": size, "sha256": digest.hexdigest()})

    def write_rows(self, name: str, rows: Iterable[JsonObject]) -> None:
        count = 0

        def lines() -> Iterator[bytes]:
            nonlocal count
            for row in rows:
                count += 1
                yield json.dumps(row, cls=_Encoder, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"

        self.write(name, lines())
        self.files[-1]["rows"] = count

    def write_json(self, name: str, value: object) -> None:
        text = json.dumps(value, cls=_Encoder, ensure_ascii=False, indent=2)
        self.write(name, [text.encode("utf-8", "surrogatepass") + b"\n"])


class _Encoder(DjangoJSONEncoder):
    def default(self, value: object) -> object:
        return bytes(value).hex() if isinstance(value, bytes | memoryview) else super().default(value)


@contextmanager
def archive_at(path: Path) -> Iterator[PersonalArchive]:
    """A zip if the path ends so, else a new folder; readable by its owner only."""
    if path.exists():
        raise CannotWrite(f"{path} already exists: name another file")
    try:
        if path.suffix.lower() == ".zip":
            yield from _zip(path)
        else:
            path.mkdir(mode=0o700, parents=True)
            yield PersonalArchive(lambda name: _private(path / name))
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written ({error.strerror})") from error


def _zip(path: Path) -> Iterator[PersonalArchive]:
    """Under another name until it is complete."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with _private(unfinished) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            yield PersonalArchive(lambda name: archive.open(name, "w", force_zip64=True))
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _private(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
