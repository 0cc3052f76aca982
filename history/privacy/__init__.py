"""Personal data of one user: export as files, or erasure with a receipt.

This package knows the data of `history`: sessions, keys, calls, links and audit events. Other apps that store personal
data register it (`register_personal_data`).
"""

from history.privacy.erase import ErasurePlan, LastStaffMember, Receipt, erase_person, plan_for
from history.privacy.personal_data import PersonalData, export_person, register_personal_data, rows_of_table

__all__ = [
    "ErasurePlan", "LastStaffMember", "PersonalData", "Receipt",
    "erase_person", "export_person", "plan_for", "register_personal_data", "rows_of_table",
]  # fmt: skip
