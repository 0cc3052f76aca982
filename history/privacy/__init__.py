"""One person's data: everything that is kept about them, given out as files, or erased with a receipt.

The record knows its own part (sessions, keys, calls, links, audit events). Whoever else keeps something about people
says so (`register_holding`): what it has of a person, and how that is erased.

    holdings (who keeps what) → giving (into an archive) · erasing (with a receipt)
"""

from history.privacy.erase import ErasurePlan, LastOfTheHouse, Receipt, erase_person, plan_for
from history.privacy.export import give_person
from history.privacy.registry import Holding, register_holding, rows_holding

__all__ = [
    "ErasurePlan",
    "Holding",
    "LastOfTheHouse",
    "Receipt",
    "erase_person",
    "give_person",
    "plan_for",
    "register_holding",
    "rows_holding",
]
