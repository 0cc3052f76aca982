"""Search: full text over everything that was said, called and answered; the same on SQLite and PostgreSQL.

`words` makes the words, `rows` what is stored of them, `queries` reads what was typed, `engines` asks the database,
`finding` decides what a viewer gets to see, `snippets` shows why. `docs/search.md` tells it from the outside.
"""

from history.record.search_rows import SearchScope, rows_for, scope_of
from history.search.facets import Newest, facets, newest_hits
from history.search.finding import Count, Filters, Hit, Results, search
from history.search.rebuilding import rebuild
from history.search.sessions import sessions_with
from history.search.snippets import Snippet

__all__ = [
    "Count", "Filters", "Hit", "Newest", "Results", "SearchScope", "Snippet", "facets", "newest_hits", "rebuild",
    "rows_for", "scope_of", "search", "sessions_with",
]  # fmt: skip
