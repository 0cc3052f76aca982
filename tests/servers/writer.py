"""What other processes do in tests: `python -m tests.servers.writer COMMAND WORDS`, one JSON value per line on stdout.

A line is printed only after the call that it speaks of has returned: what a reader has seen was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

import django

django.setup()

from django.db import connection  # noqa: E402
from django.utils import timezone  # noqa: E402

from history import verification  # noqa: E402
from history.entries import Entry, SystemInstructionSet  # noqa: E402
from history.models import Exchange, Message, Session  # noqa: E402
from history.record import exchanges, recorder  # noqa: E402
from project.accounts.models import User  # noqa: E402
from tests.factories import model_input, model_output, tool_request, tool_result, tool_results  # noqa: E402


def print_json(value: Any) -> None:
    # One write per line, so that a kill never leaves two halves of different lines.
    os.write(1, (json.dumps(value) + "\n").encode())


def owner() -> User:
    return User.objects.get_or_create(username="worker")[0]


def begin(number: str) -> None:
    """New sessions, each with a question; prints their ids."""
    sessions = [recorder.start_session(owner=owner()) for _ in range(int(number))]
    for session in sessions:
        recorder.append(session, model_input("begin"), after=0)
    print_json([str(session.pk) for session in sessions])


def write_together(writers: str, many: str, *sessions: str) -> None:
    """So many processes append to these sessions at the same time; prints what each was told, and how they ended."""
    connection.close()  # a child needs one of its own
    children = [_forked(partial(_write, f"w{number}", int(many), sessions)) for number in range(int(writers))]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print_json({"exit_codes": codes})


def _forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except Exception:  # noqa: BLE001 - the parent sees the code, a reader the traceback
        traceback.print_exc()
    finally:
        os._exit(code)


def _write(name: str, many: int, sessions: Sequence[str]) -> None:
    """Append to these sessions in turn, always after what was seen last."""
    for number in range(many):
        session = Session.objects.get(pk=sessions[number % len(sessions)])
        seen = session.head
        texts = [f"{name}-{number}", f"{name}-{number}-b"]
        appended = recorder.append_many(session, [model_input(text) for text in texts], after=seen)
        for text, after, one in zip(texts, [seen, appended[0].seq], appended, strict=True):
            print_json(
                {"session": str(session.pk), "seq": one.seq, "after": after, "text": text, "moved": one.moved_head}
            )


def write_everything(name: str, session_id: str) -> None:
    """Append entries of all sorts until killed: calls and results, long texts, moves of the head, batches."""
    session = Session.objects.get(pk=session_id)
    for number in count():
        seen = session.head
        for step in _steps(name, number, session):
            print_json({"seqs": step, "version": session.version})
        if number % 5 == 4:
            recorder.move_head(session, to=seen)
            print_json({"seqs": [session.version], "version": session.version})


def _steps(name: str, number: int, session: Session) -> Iterator[list[int]]:
    talk: list[Entry] = [
        model_input(f"{name}-{number} " + "long " * random.choice([1, 10, 20_000])),
        model_output("", tool_request(f"c{number}")),
        SystemInstructionSet(instruction=f"rule {number % 3} " * 200),
        tool_results(tool_result(f"c{number}", "out " * random.choice([1, 30_000]))),
    ]
    yield [one.seq for one in recorder.append_many(session, talk, after=session.head)]
    yield [recorder.append(session, model_output(f"answer {number}"), after=session.head).seq]


def survey(session_id: str) -> None:
    """Everything there is of one session, and what is wrong with it."""
    session = Session.objects.get(pk=session_id)
    rows = Message.objects.filter(session=session).order_by("seq")
    columns = ("seq", "parent_seq", "kind", "status", "content", "on_path", "moved_head")
    print_json({
        "version": session.version,
        "head": session.head,
        "messages": session.message_count,
        "rows": [row | {"content": row["content"][:80]} for row in rows.values(*columns)],
        "findings": [str(finding) for finding in verification.verify(sessions=[session.pk])],
    })  # fmt: skip


def check() -> None:
    """Whether the database itself is sound, and everything in it; prints what is wrong."""
    wrong = [str(finding) for finding in verification.verify()]
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA integrity_check")
            wrong += [line for (line,) in cursor.fetchall() if line != "ok"]
    print_json(wrong)


def stream(session_id: str) -> None:
    """An answer that grows until its process is killed."""
    session = Session.objects.get(pk=session_id)
    exchange = exchanges.open_exchange(session, owner=session.owner, after=session.head, model="model-1")
    print_json({"exchange": str(exchange.pk)})
    text = ""
    while True:
        text += "word "
        exchanges.note_partial(exchange.pk, model_output(text))
        exchanges.flush_partials()
        print_json({"flushed": text})


def sweep() -> None:
    """As if half a minute had passed without a sign of life."""
    late = timezone.now() - timedelta(minutes=1)
    Exchange.objects.filter(ended_at=None).update(heartbeat_at=late)
    print_json(exchanges.sweep())


def race_to_finish(rounds: str) -> None:
    """Several threads end the same exchange, some as its writer and some as the sweep."""
    print_json([_race(recorder.start_session(owner=owner())) for _ in range(int(rounds))])


def _race(session: Session) -> dict[str, object]:
    recorder.append(session, model_input("question"), after=0)
    exchange = exchanges.open_exchange(session, owner=session.owner, after=1, model="model-1")
    exchanges.note_partial(exchange.pk, model_output("half"))
    exchanges.flush_partials()
    Exchange.objects.filter(pk=exchange.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=1))
    won: list[object] = []
    start = threading.Barrier(6)

    def end(place: int) -> None:
        start.wait()
        if place % 2:
            exchanges.sweep()
        else:
            mine = Exchange.objects.get(pk=exchange.pk)
            won.append(exchanges.finish(mine, model_output("whole"), end_reason="done"))
        connection.close()

    threads = [threading.Thread(target=end, args=[place]) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended = Exchange.objects.get(pk=exchange.pk)
    answers = Message.objects.filter(session=session, kind="model_output").order_by("seq")
    return {
        "winners": sum(one is not None for one in won),
        "end": ended.end_reason,
        "whole": answers.filter(content="whole").count(),
        "halves": answers.filter(content="half").count(),
        "on_path": list(answers.filter(on_path=True).values_list("content", flat=True)),
    }


def serve() -> None:
    """Run the commands that come in, a JSON list of words each, until there are no more."""
    for line in sys.stdin:
        command, *words = json.loads(line)
        COMMANDS[command](*words)


COMMANDS: dict[str, Callable[..., None]] = {
    command.__name__: command
    for command in (begin, write_together, write_everything, survey, check, stream, sweep, race_to_finish, serve)
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
