"""Personal data of one user: export as files, or erasure with a receipt.

The record knows its own part (sessions, keys, calls, links, audit events). Another app that keeps personal data
says so (`register_holding`): what it has of a person, and how that is erased.

    holdings (who keeps what) → giving (into an archive) · erasing (with a receipt)
"""

from history.privacy.erase import ErasurePlan, LastStaffMember, Receipt, erase_person, plan_for
from history.privacy.export import export_person
from history.privacy.registry import Holding, register_holding, rows_holding

__all__ = [
    "ErasurePlan",
    "Holding",
    "LastStaffMember",
    "Receipt",
    "erase_person",
    "export_person",
    "plan_for",
    "register_holding",
    "rows_holding",
]
