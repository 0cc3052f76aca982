"""Calls between modules of the dialects go one way: no two modules call each other."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from history.answers.events import AnswerFailed
from history.dialects import DIALECTS, CallOptions, Switches, context_of
from tests.history.dialects.samples import CALLS, STREAMS, answer, canonical, decode, instructed

PACKAGE = "history.dialects"


@contextmanager
def recorded_calls() -> Iterator[set[tuple[str, str]]]:
    """Calls from one module of the package into another, with other modules between them left out."""
    calls: set[tuple[str, str]] = set()

    def record(frame: FrameType, event: str, _argument: Any) -> None:
        called = str(frame.f_globals.get("__name__"))
        if event != "call" or not called.startswith(PACKAGE):
            return
        back = frame.f_back
        while back is not None and not str(back.f_globals.get("__name__")).startswith(PACKAGE):
            back = back.f_back
        if back is not None and back.f_globals["__name__"] != called:
            calls.add((back.f_globals["__name__"], called))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_no_two_modules_of_dialects_call_each_other() -> None:
    remove, plain = Switches(system_role="remove", media_in_results=False), Switches()
    with recorded_calls() as calls:
        for name, dialect in DIALECTS.items():
            for switches in (plain, remove):
                dialect.encode(canonical(instructed("Be brief.")), CallOptions(model="m", switches=switches))
            body = dialect.encode(canonical(), CallOptions(model="m", tool_name=CALLS[0].name)).body
            context_of(dialect.decode_request(body))
            dialect.encode_reply(answer(name, STREAMS[name]), reply_id="r1")
            dialect.encode_error(dialect.decode_error(500, b"{}"))
            for client in DIALECTS.values():
                encoder = client.stream_encoder(model="m", reply_id="r1")
                for event in (*decode(name, STREAMS[name]), AnswerFailed(message="broken")):
                    encoder.feed(event)
                encoder.end()
    assert calls
    assert [pair for pair in sorted(calls) if pair[::-1] in calls] == []
