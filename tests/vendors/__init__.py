"""The vendors, played on loopback: a real HTTP server that speaks all four wire formats and keeps the vendors' rules.

    with Vendors() as vendors:
        vendors.plays("anthropic-messages", says("Hello."), refuses("rate_limit", headers={"retry-after": "1"}))
        …
        vendors.requests[-1].body

Requests that the real vendor would refuse are refused here, in its own words and envelope: so a test that gets an
answer has also shown that what went out was valid.
"""

from tests.vendors.plays import (
    Play as Play,
    asks as asks,
    raw as raw,
    refuses as refuses,
    says as says,
    thinks as thinks,
)
from tests.vendors.server import KEYS as KEYS, Seen as Seen, Vendors as Vendors
