"""Tables of the history, one module per group of tables.

An entry of the history is one `Message` row, immutable once written. Rows of one session are numbered by `seq` and
form a tree through `parent_seq`. The parent is a number *within the session*, so a parent in another session cannot be
stored. The other columns and tables are projections that can be rebuilt from the entries (counters, `head`, `on_path`,
`ToolCall`, `SearchRow`) or describe the owner, the API key and the call to the model.

Only `record.recorder` and `record.exchanges` write these tables (and `transcripts.share_links` its links). Only
`retention` deletes from them. `record.selectors` and `search` read them on behalf of a viewer.
"""

from history.models.audit import AuditEvent
from history.models.daily_counts import DayTally, StaleDay
from history.models.exchanges import EarlierTry, Exchange, TokenCalibration
from history.models.imports import ImportJob
from history.models.keys import ApiKey
from history.models.messages import Blob, Message, SearchRow, ToolCall
from history.models.sessions import Session, SessionQuerySet, TitlePolicy, neutral_name
from history.models.share_links import ShareLink

__all__ = [
    "ApiKey",
    "AuditEvent",
    "Blob",
    "DayTally",
    "EarlierTry",
    "Exchange",
    "ImportJob",
    "Message",
    "SearchRow",
    "Session",
    "SessionQuerySet",
    "ShareLink",
    "StaleDay",
    "TitlePolicy",
    "TokenCalibration",
    "ToolCall",
    "neutral_name",
]
