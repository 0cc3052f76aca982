"""Browsing the record: what an address asks for, the sessions or messages that it finds, and facets to narrow it.

asked (an address, read and written) → finding (sessions by activity, or messages by the search engine)
                                     → facets (how that is spread) → page (all of it, for a viewer)
"""

from history.browsing.archiving import latest_archiving, note_archiving
from history.browsing.asked import Asked
from history.browsing.page import Browse, browse, browse_again, browse_on, just_deleted_by

__all__ = [
    "Asked",
    "Browse",
    "browse",
    "browse_again",
    "browse_on",
    "just_deleted_by",
    "latest_archiving",
    "note_archiving",
]
