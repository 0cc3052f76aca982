"""Tables of the history, one module per group of tables.

An entry is one immutable `Message` row. The rows of a session are numbered by `seq` and form a tree through
`parent_seq`. Other columns and tables are projections, or describe owner, key and call.
"""

from history.models.access import ApiKey, AuditEvent
from history.models.daily_counts import DayTally, StaleDay
from history.models.exchanges import EarlierTry, Exchange, TokenCalibration
from history.models.imports import ImportJob
from history.models.messages import Blob, Message, SearchRow, ToolCall
from history.models.sessions import Session, SessionQuerySet, ShareLink, neutral_name

__all__ = (
    "ApiKey", "AuditEvent", "Blob", "DayTally", "EarlierTry", "Exchange", "ImportJob", "Message", "SearchRow",
    "Session", "SessionQuerySet", "ShareLink", "StaleDay", "TokenCalibration", "ToolCall", "neutral_name",
)  # fmt: skip
