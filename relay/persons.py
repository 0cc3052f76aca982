"""What the carrier keeps about people: what they may use and have used, what waits to be sent, and their runs."""

from __future__ import annotations

from history.persons import register_holding, rows_holding
from relay.models import Allowance, QueuedMessage, RecentMessage, Run, Spending


def register() -> None:
    register_holding(rows_holding("waiting_messages", QueuedMessage, of="owner"))
    register_holding(rows_holding("runs", Run, of="owner"))
    register_holding(rows_holding("allowance", Allowance, of="user"))
    register_holding(rows_holding("use_by_day", Spending, of="user"))
    register_holding(rows_holding("recent_messages", RecentMessage, of="user"))
