"""Log lines: one record, one line (a traceback follows indented), and no secret in any of them."""

import json
import logging
import re
from collections import Counter
from copy import copy
from datetime import UTC, datetime

from history.redaction.detectors import without_credentials

BLOT = "•••"
SECRETS = (
    # Authorization: Bearer abc, x-api-key: abc, api_key=abc, ?key=abc, "password": "abc"
    re.compile(
        r"(?P<kept>(?:\b|(?<=[_-]))(?:authorization|(?:x-)?(?:goog-)?api[-_]?key|access[-_]token|token|secret|password|key)"
        r"[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic)\s+)?)(?P<secret>[^\s\"'&,;}]+)",
        re.IGNORECASE,
    ),
    re.compile(r"(?P<kept>\b(?:bearer|basic)\s+)(?P<secret>[\w.~+/=-]{8,})", re.IGNORECASE),
    # A one-time sign-in link, a share link.
    re.compile(r"(?P<kept>/accounts/link/|/shared/)(?P<secret>[\w-]+)"),
    # user:password@host inside an address.
    re.compile(r"(?P<kept>\b\w+://)(?P<secret>[^\s/@]+)(?=@)"),
)


def without_secrets(text: str) -> str:
    for pattern in SECRETS:
        text = pattern.sub(rf"\g<kept>{BLOT}", text)
    # Keys with a known form, those of Parley included.
    return without_credentials(text, Counter())


def without_refusals(record: logging.LogRecord) -> logging.LogRecord:
    """A request that Django refuses, without its traceback. One for each would let anyone fill the log."""
    if not record.name.startswith("django.security.") and getattr(record, "status_code", 500) >= 500:
        return record
    record = copy(record)
    record.exc_info = record.exc_text = None
    return record


class LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        return super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")

    def formatException(self, ei: object) -> str:  # noqa: N802 - the standard library's name
        return "    " + super().formatException(ei).replace("\n", "\n    ")  # type: ignore[arg-type]

    def format(self, record: logging.LogRecord) -> str:
        return without_secrets(super().format(without_refusals(record)))


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for programs that collect logs. The time is UTC."""

    def format(self, record: logging.LogRecord) -> str:
        record = without_refusals(record)
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": without_secrets(record.getMessage()),
            "process": record.process,
        }
        if record.exc_info:
            line["exception"] = without_secrets(self.formatException(record.exc_info))
        return json.dumps(line, ensure_ascii=False)
