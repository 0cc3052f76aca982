"""Filtering of request and response headers by block list, so new vendor headers pass.

Not sent to the vendor: credentials of the caller, headers of proxies, hop-by-hop headers. Not returned to the caller:
hop-by-hop headers and cookies of the operator's account.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote_plus

from multidict import CIMultiDict

from relay.gateway.journal.records import CREDENTIALS

Pairs = list[tuple[str, str]]

BETWEEN_HOPS = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
        *("proxy-authenticate", "proxy-authorization"),
    }
)
NOT_SENT = (
    BETWEEN_HOPS
    | CREDENTIALS
    | {"host", "content-length", "accept-encoding", "forwarded", "via", "x-real-ip", "cdn-loop", "true-client-ip"}
)
NOT_SENT_BEGINNINGS = ("x-forwarded-", "cf-", "x-crs-", "x-parley-")
# What an upstream that is a Parley itself says of its own record would stand beside what we say of ours.
SAID_BY_US = frozenset({"x-parley-exchange-id", "x-parley-session-id", "x-crs-session-id", "x-parley-recording"})
NOT_RETURNED = frozenset(
    name.encode()
    for name in BETWEEN_HOPS | SAID_BY_US | {"set-cookie", "date", "server", "alt-svc", "strict-transport-security"}
)
# Worth keeping of a reply: whose call it was to the vendor, and how much the account has left.
KEPT_BEGINNINGS = (
    *(b"x-ratelimit-", b"anthropic-ratelimit-", b"retry-after", b"x-should-retry", b"openai-", b"x-parley-not-"),
)
KEPT = frozenset({b"request-id", b"x-request-id", b"content-type", b"content-encoding"})


class Read(NamedTuple):
    """Headers as texts, and as they go on: a byte that is no UTF-8 stands in the latter as Python escapes it."""

    pairs: Pairs
    wire: Pairs


def read(raw: Sequence[tuple[bytes, bytes]]) -> Read:
    """As UTF-8; what is none is taken for the older alphabet, and goes on as it came."""
    try:
        pairs = [(name.decode("latin-1").lower(), value.decode()) for name, value in raw]
    except UnicodeDecodeError:
        names = [name.decode("latin-1").lower() for name, _ in raw]
        escaped = [value.decode("utf-8", "surrogateescape") for _, value in raw]
        return Read(list(zip(names, map(_text, raw), strict=True)), list(zip(names, escaped, strict=True)))
    return Read(pairs, pairs)


def _text(header: tuple[bytes, bytes]) -> str:
    value = header[1]
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def sent(pairs: Pairs, ours: Iterable[tuple[str, str]], *, has_connection: bool = False) -> CIMultiDict[str]:
    """What goes to the vendor: the caller's, with those of the provider in the place of the same ones.

    `has_connection`: there is a header of that name, which may name others that are between two hops.
    """
    named = _named_between_hops(pairs) if has_connection else ()
    passed: CIMultiDict[str] = CIMultiDict(
        [
            pair
            for pair in pairs
            if pair[0] not in NOT_SENT and pair[0] not in named and not pair[0].startswith(NOT_SENT_BEGINNINGS)
        ]
    )
    for name, value in ours:
        passed[name] = value
    # A stream must not wait until a block is full.
    passed["Accept-Encoding"] = "identity"
    return passed


def _named_between_hops(pairs: Iterable[tuple[str, str]]) -> set[str]:
    told = ",".join(value for name, value in pairs if name == "connection")
    return {word.strip().lower() for word in told.split(",")}


def returned(raw: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    passed = [(lower, value) for name, value in raw if (lower := name.lower()) not in NOT_RETURNED]
    if len(passed) == len(raw):
        return passed
    told = b",".join(value for name, value in raw if name.lower() == b"connection")
    between = {word.strip().lower() for word in told.split(b",")}
    return [pair for pair in passed if pair[0] not in between]


def kept(raw: Iterable[tuple[bytes, bytes]]) -> Pairs:
    return [
        (lower.decode("latin-1"), value.decode("latin-1"))
        for name, value in raw
        if (lower := name.lower()) in KEPT or lower.startswith(KEPT_BEGINNINGS)
    ]


# A key may also stand in the address, where every log would show it.


def key_in(query: str) -> str:
    return next((value for name, value in parse_qsl(query) if name == "key"), "") if "key=" in query else ""


def without_key(query: str) -> str:
    """The same question without a key; everything else to the letter."""
    return "&".join(_but_key(query)) if "key" in query or "%" in query else query


def _but_key(query: str) -> Iterator[str]:
    for piece in query.split("&"):
        if unquote_plus(piece.partition("=")[0]) != "key":
            yield piece
