"""With how many examples a property of the record is tried.

On the second database a quarter of them will do: there only the database is another, and each example costs more.
"""

from django.conf import settings


def examples(number: int) -> int:
    return max(2, number // 4) if settings.DATABASE_URL.startswith("postgres") else number
