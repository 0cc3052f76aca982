"""Response headers of the gateway: ids of exchange and session, recording mode."""

from __future__ import annotations

from relay.gateway.call.calls import Call


def our_headers(call: Call) -> list[tuple[bytes, bytes]]:
    told = [
        (b"x-parley-exchange-id", call.name.encode()),
        (b"x-parley-recording", call.recording.encode()),
    ]
    if call.naming.session and call.recording != "off":
        session = str(call.naming.session).encode()
        told += [(b"x-parley-session-id", session), (b"x-crs-session-id", session)]
    return told


def record_headers(call: Call) -> tuple[tuple[str, str], ...]:
    """The same of the record alone, for a refusal of what is recorded already."""
    return tuple((name.decode(), value.decode()) for name, value in our_headers(call)[1:])


def json_headers(body: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
