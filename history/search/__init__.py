"""Full-text search over all messages, answers and tool calls; the same on SQLite and PostgreSQL.

`record.search_tokens` splits texts into words, `record.search_rows` stores them, `queries` parses what was typed,
`engines` asks the database, `finding` filters by permission, `snippets` shows the match. See `docs/search.md`.
"""

from history.record.search_rows import rebuild
from history.search.facets import facets, named_facets, newest_hits
from history.search.finding import Count, Hit, Results, find_session_ids, search
from history.search.queries import SessionQuery
from history.search.snippets import Snippet

__all__ = [
    "Count", "Hit", "Results", "SessionQuery", "Snippet",
    "facets", "find_session_ids", "named_facets", "newest_hits", "rebuild", "search",
]  # fmt: skip
