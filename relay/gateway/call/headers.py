"""Filtering of request and response headers by block list, so that new vendor headers pass.

Not sent to the vendor: credentials of the caller, headers of proxies, hop-by-hop headers. Not returned to the caller:
hop-by-hop headers and cookies of the operator's account.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from multidict import CIMultiDict

from relay.gateway.journal.records import CREDENTIALS
from relay.runtime.asgi import Headers

Pairs = list[tuple[str, str]]

HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
        *("proxy-authenticate", "proxy-authorization"),
    }
)
NOT_SENT = (
    HOP_BY_HOP
    | CREDENTIALS
    | {"host", "content-length", "accept-encoding", "forwarded", "via", "x-real-ip", "cdn-loop", "true-client-ip"}
)
NOT_SENT_PREFIXES = ("x-forwarded-", "cf-", "x-crs-", "x-parley-")
# An upstream that is a Parley itself sends these about its own record.
OURS = frozenset({"x-parley-exchange-id", "x-parley-session-id", "x-crs-session-id", "x-parley-recording"})
OF_THE_SERVER = {"set-cookie", "date", "server", "alt-svc", "strict-transport-security"}
NOT_RETURNED = frozenset(name.encode() for name in HOP_BY_HOP | OURS | OF_THE_SERVER)
# Recorded of a reply: the vendor's id of the call, and what is left of the account's limits.
RECORDED_PREFIXES = (
    *(b"x-ratelimit-", b"anthropic-ratelimit-", b"retry-after", b"x-should-retry", b"openai-", b"x-parley-not-"),
)
RECORDED = frozenset({b"request-id", b"x-request-id", b"content-type", b"content-encoding"})


class RequestHeaders(NamedTuple):
    """Headers as text (`pairs`), and as they are sent on (`wire`): there bytes that are not UTF-8 are escaped."""

    pairs: Pairs
    wire: Pairs


def decode_headers(raw: Sequence[tuple[bytes, bytes]]) -> RequestHeaders:
    """As UTF-8, else as Latin-1, and sent on as they came."""
    try:
        pairs = [(name.decode("latin-1").lower(), value.decode()) for name, value in raw]
    except UnicodeDecodeError:
        named = [(name.decode("latin-1").lower(), value) for name, value in raw]
        escaped = [(name, value.decode("utf-8", "surrogateescape")) for name, value in named]
        return RequestHeaders([(name, _text(value)) for name, value in named], escaped)
    return RequestHeaders(pairs, pairs)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def headers_for_upstream(pairs: Pairs, own: Mapping[str, str], *, has_connection: bool = False) -> CIMultiDict[str]:
    """The caller's headers, with those of the provider in place of the same ones."""
    # A `Connection` header may name more hop-by-hop headers.
    named = _named_in(",".join(value for name, value in pairs if name == "connection")) if has_connection else ()
    passed: CIMultiDict[str] = CIMultiDict(
        [
            pair
            for pair in pairs
            if pair[0] not in NOT_SENT and pair[0] not in named and not pair[0].startswith(NOT_SENT_PREFIXES)
        ]
    )
    for name, value in own.items():  # `update` would keep names of `own` that differ in case only
        passed[name] = value
    # A stream must not wait until a block is full.
    passed["Accept-Encoding"] = "identity"
    return passed


def headers_for_client(raw: Sequence[tuple[bytes, bytes]]) -> Headers:
    passed = [(lower, value) for name, value in raw if (lower := name.lower()) not in NOT_RETURNED]
    if len(passed) == len(raw):
        return passed
    connection = b",".join(value for name, value in raw if name.lower() == b"connection")
    named = _named_in(connection.decode("latin-1"))
    return [pair for pair in passed if pair[0].decode("latin-1") not in named]


def _named_in(connection: str) -> set[str]:
    return {name.strip().lower() for name in connection.split(",")}


def headers_to_record(raw: Iterable[tuple[bytes, bytes]]) -> Pairs:
    return [
        (lower.decode("latin-1"), value.decode("latin-1"))
        for name, value in raw
        if (lower := name.lower()) in RECORDED or lower.startswith(RECORDED_PREFIXES)
    ]
