"""Lines of JSONL files: canonical JSON objects, header and times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from history.db.packing import dump
from history.formats.base import FormatError, gettext_noop
from history.formats.sources import check_values

FORMAT, VERSION = "parley", 1

HEADER = {"type": "header", "format": FORMAT, "version": VERSION}

_FIRST, _LAST = 1970, 2200

_BODY = b'{"body":'
_AFTER_BODY = b',"created_at":'


def line_of(value: Mapping[str, Any]) -> bytes:
    return dump(value, sort_keys=True).encode() + b"\n"


def entry_line(body: str, rest: Mapping[str, Any]) -> bytes:
    """A line with a body in it, byte for byte as it was sealed; of the names in it, `body` comes first."""
    return _BODY + body.encode() + b"," + line_of(rest)[1:]


def read_line(line: bytes) -> dict[str, Any]:
    """The object of a line; where we wrote it, `body` is the text that was sealed and not what it says."""
    check_values(line)
    if line.startswith(_BODY):
        # No user content follows the body.
        end = line.rfind(_AFTER_BODY)
        if end > 0:
            return {**_object(b"{" + line[end + 1 :]), "body": line[len(_BODY) : end].decode()}
    return _object(line)


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(gettext_noop("this line is not valid JSON")) from error
    if not isinstance(value, dict):
        raise FormatError(gettext_noop("this line is not a JSON object"))
    return value


def is_header(line: bytes) -> bool:
    """Whether a file that begins with this line is an export of Parley, of any version."""
    try:
        value = _object(line)
    except FormatError:
        return False
    return value.get("type") == "header" and value.get("format") == FORMAT


def check_header(value: Mapping[str, Any]) -> None:
    if value.get("type") != "header" or value.get("format") != FORMAT:
        raise FormatError(gettext_noop("this is not an export of Parley: it has no header"))
    if value.get("version") != VERSION:
        words = gettext_noop("this export is of version %(version)s; this Parley reads version %(ours)s")
        raise FormatError(words, version=str(value.get("version")), ours=VERSION)


def time_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def time_of(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return check_year((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC))
    except (TypeError, ValueError, OverflowError):
        raise FormatError(gettext_noop("%(value)s is no time"), value=repr(str(text)[:40])) from None


def check_year(moment: datetime) -> datetime:
    """Raise ValueError for years that cannot be right. Dates at the ends of the calendar overflow in other time
    zones and in sums, and then lists and purges fail for all users.
    """
    if not _FIRST <= moment.year <= _LAST:
        raise ValueError(f"the year {moment.year} is out of the question")
    return moment
