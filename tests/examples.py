"""With how many examples a property is tried.

With PARLEY_STEPS, as `make faults` sets it, all of them. The check takes the same ones every time, so that half of them
will do, and on the second database an eighth: there only the database is another, and each example costs more.
"""

import os

from django.conf import settings


def examples(number: int) -> int:
    if "PARLEY_STEPS" in os.environ:
        return number
    return max(2, number // (8 if settings.DATABASE_URL.startswith("postgres") else 2))
