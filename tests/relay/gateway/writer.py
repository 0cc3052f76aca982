"""A process that writes a journal, to be killed: `writer.py FOLDER [KEY OWNER]`, or `--full` with a bound on its files.

It says on stdout what it has written, one line for each exchange that is wholly acknowledged.
"""

import asyncio
import resource
import sys
import time
from pathlib import Path
from uuid import UUID, uuid4

from relay.gateway.journal.records import CallAccepted, CallEnded
from relay.gateway.journal.writer import Journal

# Whose the exchanges are. Set below if this is the main module: importers have other arguments.
KEY, OWNER = 1, 1


def accept(journal: Journal, exchange: UUID, body: bytes = b'{"model": "m"}', *, recording: str = "full") -> bool:
    record = CallAccepted(
        exchange=exchange, at=time.time(), key=KEY, owner=OWNER, recording=recording, dialect="d", body_size=len(body)
    )
    return journal.accept(record, body)


def write_one(journal: Journal, body: bytes = b'{"model": "m"}') -> bool:
    exchange = uuid4()
    kept = accept(journal, exchange, body)
    journal.reply(exchange, b"data: one\n\n")
    journal.reply(exchange, b"data: two\n\n")
    journal.end(CallEnded(exchange=exchange, at=time.time(), reason="done", status=200))
    print_line(f"{exchange} {'kept' if kept else 'lost'}")
    return kept


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def go_on(journal: Journal) -> None:
    """Until it is killed, with one reply that never ends."""
    endless = uuid4()
    accept(journal, endless)
    print_line(f"{endless} endless")
    while True:
        journal.reply(endless, b"still")
        write_one(journal)
        await asyncio.sleep(0.001)


def fill_up(journal: Journal) -> None:
    """Until the disk is full, then with free space again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    while write_one(journal, body=b"x" * 3_000):
        pass
    write_one(journal, body=b"x" * 3_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    counted = f"{journal.unreported.calls} calls {journal.unreported.lost_bytes} bytes"
    write_one(journal)
    print_line(counted)
    journal.close()


if __name__ == "__main__":
    here = Journal(Path(sys.argv[1]))
    if len(sys.argv) == 4:
        KEY, OWNER = map(int, sys.argv[2:])
    if "--full" in sys.argv:
        fill_up(here)
    else:
        asyncio.run(go_on(here))
