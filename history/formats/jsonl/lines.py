"""Lines of JSONL files: canonical JSON objects, header and times."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from history.db.packing import dump
from history.entries import JsonDict, JsonObject
from history.formats.base import FormatError
from history.formats.sources import check_values
from history.text.lazy import gettext_noop as _

FORMAT, VERSION = "parley", 1

HEADER = {"type": "header", "format": FORMAT, "version": VERSION}

_FIRST, _LAST = 1970, 2200

_BODY = b'{"body":'
_AFTER_BODY = b',"created_at":'


def line_of(value: JsonObject) -> bytes:
    return dump(value, sort_keys=True).encode() + b"\n"


def entry_line(body: str, rest: JsonObject) -> bytes:
    """A line with a body in it, byte for byte as it was sealed; of the names in it, `body` comes first."""
    return _BODY + body.encode() + b"," + line_of(rest)[1:]


def read_line(line: bytes) -> JsonDict:
    """The object of a line. In lines of this writer `body` is the sealed text, not its parsed value."""
    check_values(line)
    if line.startswith(_BODY):
        # No user content follows the body.
        end = line.rfind(_AFTER_BODY)
        if end > 0:
            return {**_object(b"{" + line[end + 1 :]), "body": line[len(_BODY) : end].decode()}
    return _object(line)


def _object(text: bytes) -> JsonDict:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(_("this line is not valid JSON")) from error
    if not isinstance(value, dict):
        raise FormatError(_("this line is not a JSON object"))
    return value


def is_header(line: bytes) -> bool:
    """Whether a file that begins with this line is an export of Parley, of any version."""
    try:
        value = _object(line)
    except FormatError:
        return False
    return value.get("type") == "header" and value.get("format") == FORMAT


def check_header(value: JsonObject) -> None:
    if value.get("type") != "header" or value.get("format") != FORMAT:
        raise FormatError(_("this is not an export of Parley: the header is missing"))
    if value.get("version") != VERSION:
        words = _("this export has version %(version)s; this server reads version %(ours)s")
        raise FormatError(words, version=str(value.get("version")), ours=VERSION)


def time_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def time_of(text: object) -> datetime:
    try:
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]
        return check_year((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC))
    except (TypeError, ValueError, OverflowError):
        raise FormatError(_("%(value)s is not a valid time"), value=repr(str(text)[:40])) from None


def check_year(moment: datetime) -> datetime:
    """Raise ValueError for years that cannot be right. Dates at the ends of the calendar overflow in other time
    zones and in sums, and then lists and purges fail for all users.
    """
    if not _FIRST <= moment.year <= _LAST:
        raise ValueError(f"the year {moment.year} is out of range")
    return moment


@dataclass(frozen=True, slots=True)
class ExtraSection:
    """`name` is the `type` of its lines. `take` restores one and returns the reason if it did not."""

    name: str
    give: Callable[[], Iterable[JsonObject]]
    take: Callable[[JsonObject], str]


_sections: dict[str, ExtraSection] = {}


def register_section(section: ExtraSection) -> None:
    _sections[section.name] = section


def sections() -> Mapping[str, ExtraSection]:
    return dict(sorted(_sections.items()))
