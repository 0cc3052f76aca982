"""Browsing the record: what an address asks for, the sessions or messages that it finds, and facets to narrow it.

asked (an address, read and written) → finding (sessions by activity, or messages by the search engine)
                                     → facets (how that is spread) → page (all of it, for a viewer)
"""

from history.pages.browse.archiving import latest_archiving, note_archiving
from history.pages.browse.page import Browse, browse, browse_again, browse_on, just_deleted_by
from history.pages.browse.query import BrowseQuery

__all__ = [
    "Browse",
    "BrowseQuery",
    "browse",
    "browse_again",
    "browse_on",
    "just_deleted_by",
    "latest_archiving",
    "note_archiving",
]
