"""Files that the relay puts aside: copies of large bodies and damaged bytes of the journal, and their removal.

docs/relay-recording.md says how long they stay. Each host removes those of its own folder, which no other host reaches.

    <journal>/large/<owner>/<exchange>.request, .reply      <journal>/<segment>.<byte>.damaged
"""

import logging
import time
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db.models import F, Q

from history.db.parameters import among
from history.entries import JsonObject
from history.models import AuditEvent, EarlierTry, Exchange
from history.privacy import PersonalData
from relay.gateway.journal.segments import DAMAGED_SUFFIX, UNNAMED_SUFFIX, is_written
from relay.gateway.journal_settings import journal_folder, most_bytes

logger = logging.getLogger(__name__)

FOLDER = "large"
DAY_SECONDS = 86_400.0
# A segment gets its name within a moment of its creation. One without a name is left by a process that was killed.
UNNAMED_SECONDS = 3_600.0


def name_of(exchange: UUID, body: str, *, owner: int) -> str:
    return f"{FOLDER}/{owner}/{exchange}.{body}"


def free_bytes(folder: Path, *, without: str) -> int:
    return most_bytes() - sum(_size(path) for path in copies_in(folder) if path != folder / without)


def copies_in(folder: Path, *, owner: int | None = None) -> list[Path]:
    parent = folder / FOLDER if owner is None else folder / FOLDER / str(owner)
    return [path for path in sorted(parent.rglob("*")) if path.is_file()]


def damaged_in(folder: Path) -> list[Path]:
    """The oldest first."""
    return sorted(folder.glob(f"*{DAMAGED_SUFFIX}"), key=_age, reverse=True)


def remove_due(folder: Path, *, pending: Container[UUID] = ()) -> int:
    # Copies of pending calls stay: the row that names them may not be committed yet.
    copies = [path for path in copies_in(folder) if _exchange_of(path) not in pending]
    unnamed = [
        path for path in folder.glob(f"*{UNNAMED_SUFFIX}") if _age(path) > UNNAMED_SECONDS and not is_written(path)
    ]
    return sum(map(_remove, [*_without_owner(folder, copies), *_due_damaged(folder), *unnamed]))


def erase_for(folder: Path, user: AbstractUser) -> int:
    """Remove the copies of a user, except of held sessions, and all damaged bytes: theirs may be among them."""
    return sum(map(_remove, [*_without_owner(folder, copies_in(folder, owner=user.pk)), *damaged_in(folder)]))


def personal_data() -> PersonalData:
    return PersonalData("files_aside", _rows_of, lambda user: erase_for(journal_folder(), user))


def _rows_of(user: AbstractUser) -> Iterator[JsonObject]:
    for path in copies_in(journal_folder(), owner=user.pk):
        yield {"file": str(path.relative_to(journal_folder())), "bytes": _size(path)}


def _without_owner(folder: Path, copies: Sequence[Path]) -> Iterator[Path]:
    named = _named_copies({exchange for path in copies if (exchange := _exchange_of(path)) is not None})
    for path in copies:
        is_held = named.get(str(path.relative_to(folder)))
        if is_held is None or (not is_held and _is_old(path)):
            yield path


def _named_copies(exchanges: set[UUID]) -> dict[str, bool]:
    """The copies that these exchanges name, each with whether its session is held. Trimmed turns name none."""
    tries = EarlierTry.objects.filter(pk__in=among(exchanges)).values_list("exchange_id", flat=True)
    rows = Exchange.objects.filter(pk__in=among({*exchanges, *tries})).filter(
        Q(session=None) | Q(session__hold=True) | Q(after__gte=F("session__trimmed_through"))
    )
    named: dict[str, bool] = {}
    for metadata, is_held in rows.values_list("metadata", "session__hold"):
        named |= {metadata[key]: bool(is_held) for key in ("request_file", "reply_file") if metadata.get(key)}
    return named


def _due_damaged(folder: Path) -> Iterator[Path]:
    """The oldest first, until the rest is young enough and small enough."""
    paths = damaged_in(folder)
    if not paths:
        return
    excess = sum(map(_size, paths)) - most_bytes()
    erased = AuditEvent.objects.filter(action="person.erased").order_by("-seq").values_list("at", flat=True).first()
    for path in paths:
        written_at = datetime.fromtimestamp(time.time() - _age(path), UTC)
        if excess > 0 or _is_old(path) or (erased is not None and written_at <= erased):
            excess -= _size(path)
            yield path


def _remove(path: Path) -> int:
    with suppress(FileNotFoundError):
        path.unlink()
        logger.info("%s was put aside and is removed.", path.name)
        if path.parent.parent.name == FOLDER:
            with suppress(OSError):  # the owner has others
                path.parent.rmdir()
        return 1
    return 0


def _exchange_of(path: Path) -> UUID | None:
    try:
        return UUID(path.stem)
    except ValueError:
        return None


def _is_old(path: Path) -> bool:
    days = settings.PARLEY_ASIDE_DAYS
    return bool(days) and _age(path) > days * DAY_SECONDS


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
