"""Facts of a relayed call for users: client, attempts and losses.

Names, numbers and times, for users who may list the call. What was asked and answered is in the messages, and what a
vendor said of an error is a text that takes the right to read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from history.models import Exchange

TOLD = (
    *("client", "path", "helper", "streamed", "translated_to", "not_carried", "removed_session_field"),
    *("answers", "changed_results", "unread_reply", "skipped_events", "problem"),
    *("request_bytes", "reply_bytes", "lost_bytes"),
)
TRIES = ("upstream", "retried")


def facts_of(exchange: Exchange, *, may_read: bool = False) -> dict[str, Any]:
    """Only what there is to say. `upstream`: whom we tried; `retried`: the client's own earlier tries."""
    found = {name: exchange.metadata[name] for name in TOLD if name in exchange.metadata}
    tries = {name: _without_words(exchange.metadata.get(name, ()), may_read=may_read) for name in TRIES}
    return found | {name: told for name, told in tries.items() if told}


def _without_words(tries: Iterable[Mapping[str, Any]], *, may_read: bool) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if may_read or name != "error"} for one in tries]
