"""What it costs to show answers while they are written, against a bare consumer that sends one frame per token.

Many sockets on one server process, each receives 200 tokens at 20 a second: once every socket watches a run of its own,
once all of them watch the same. Everything that the chat does is included: noting the answer, rendering it, sending it.
All questions are asked first and wait in front of the model (`chat_server.Gate`), then all answers begin together, and
the stream is measured for seven seconds. Then some more people ask while all the others are being answered, which tells
how long the first token takes, and before the first answer ends that is over: so the cost of a question, of a second of
streaming and of an end are told apart. CPU is the server process's own, measured in turns with the baseline; clients
live in this process.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from websockets.asyncio.client import ClientConnection, connect

from bench.chat_people import Address, one_session, own_sessions
from bench.chat_process import ask_server, cpu_of, serving
from bench.chat_text import COUNT, TOKENS_PER_SECOND
from bench.measure import Line, Table

SOCKETS = {"Daphne": 200, "Uvicorn": 500}
GOAL = 2.0
STREAM_SECONDS = COUNT / TOKENS_PER_SECOND
# What is measured of it: then latecomers ask, and at its end answers are stored while others still run.
WINDOW_SECONDS = STREAM_SECONDS - 3
LATE_SECONDS = 2.0
PATIENCE = 60.0
ASKED_AT_ONCE = 4
LATECOMERS = 8  # who ask while all the others are being answered
WORD, END = re.compile(r"word(\d+)in"), 'id="announcer"'


@dataclass
class Measured:
    """CPU seconds of the server by phase, and what came over its sockets."""

    sockets: int
    asking: float = 0.0
    streaming: float = 0.0
    streamed_seconds: float = 0.0  # of all sockets together, by the words that have come: a server may lag behind
    ending: float = 0.0
    frames: int = 0
    first_tokens: list[float] = field(default_factory=list)

    @property
    def cpu_per_second(self) -> float:
        """Milliseconds for one socket and one second of its stream."""
        return self.streaming / self.streamed_seconds * 1000

    @property
    def whole(self) -> float:
        """The same, with the question and the end."""
        return (self.asking + self.streaming + self.ending) / self.sockets / STREAM_SECONDS * 1000

    @property
    def first_token(self) -> float:
        return statistics.median(self.first_tokens) * 1000 if self.first_tokens else 0.0


def measure(table: Table, *, folder: Path) -> None:
    for server, count in SOCKETS.items():
        _measure_server(table, server, count, folder=folder)


def _measure_server(table: Table, server: str, count: int, *, folder: Path) -> None:
    bare = [Address("/ws/bare/", says="go")] * count
    shapes = {"a run each": own_sessions(server, count), "one run": one_session(server, count)}
    late = own_sessions(f"{server} late", LATECOMERS * len(shapes))
    with serving(server, folder) as (port, process):
        run(port, process, own_sessions(f"{server} warm", 5))
        run(port, process, bare[:20])
        for number, (shape, addresses) in enumerate(shapes.items()):
            before = run(port, process, bare, late=bare[:LATECOMERS])
            ours = run(port, process, addresses, late=late[number * LATECOMERS : (number + 1) * LATECOMERS])
            after = run(port, process, bare)
            _add_line(table, f"{server}, {count} sockets, {shape}", ours, before, after)
    kib = [_idle(server, addresses, folder=folder) for addresses in (own_sessions(f"{server} idle", count), bare)]
    table.add(Line(f"{server}, {count} sockets: memory of an idle one", kib[0], "KiB", note=f"bare {kib[1]:.0f} KiB"))


def _add_line(table: Table, what: str, ours: Measured, before: Measured, after: Measured) -> None:
    bare = statistics.mean((before.cpu_per_second, after.cpu_per_second))
    load, frames = os.getloadavg()[0], ours.frames / ours.sockets
    note = f"{ours.cpu_per_second:.2f} ms against {bare:.2f} ms, {frames:.0f} frames each, load {load:.0f}"
    table.add(Line(f"{what}: CPU per connection-second", ours.cpu_per_second / bare, "×", GOAL, note=note))
    each = [seconds / ours.sockets * 1000 for seconds in (ours.asking, ours.ending)]
    note = f"{each[0]:.0f} ms for a question, {each[1]:.0f} ms for the last seconds and the end"
    table.add(Line(f"{what}: the same with question and end", ours.whole / before.whole, "×", note=note))
    note = f"meanwhile; bare {before.first_token:.0f} ms"
    table.add(Line(f"{what}: first token of another user", ours.first_token, "ms", note=note))


def _idle(server: str, addresses: Sequence[Address], *, folder: Path) -> float:
    """KiB of one open socket, in a process that has not had so many before."""
    with serving(server, folder) as (port, process):
        run(port, process, own_sessions(f"{server} {addresses[0].path} warm", 5))
        return asyncio.run(_idle_kib(port, process, addresses))


async def _idle_kib(port: int, process: psutil.Process, addresses: Sequence[Address]) -> float:
    before = process.memory_info().rss
    sockets = [await _opened(port, address) for address in addresses]
    await asyncio.sleep(1)
    grown = process.memory_info().rss - before
    await asyncio.gather(*(socket.close() for socket in sockets))
    return grown / len(addresses) / 1024


def run(port: int, process: psutil.Process, addresses: Sequence[Address], *, late: Sequence[Address] = ()) -> Measured:
    return asyncio.run(_run(port, process, addresses, late))


async def _run(port: int, process: psutil.Process, addresses: Sequence[Address], late: Sequence[Address]) -> Measured:
    measured = Measured(len(addresses))
    clients = [Client(await _opened(port, address), address.says) for address in addresses]
    latecomers = [Client(await _opened(port, address), address.says) for address in late]
    await asyncio.sleep(1)
    async with asyncio.timeout(3 * PATIENCE), asyncio.TaskGroup() as group:
        for client in (*clients, *latecomers):
            group.create_task(client.listen())
        await _in_phases(port, process, clients, latecomers, measured)
    measured.frames = sum(client.frames for client in clients)
    await asyncio.gather(*(client.socket.close() for client in (*clients, *latecomers)))
    return measured


async def _in_phases(
    port: int, process: psutil.Process, clients: Sequence[Client], late: Sequence[Client], measured: Measured
) -> None:
    """All ask; then all are answered together; then the last second comes, and all of it is stored and shown."""
    await ask_server(port, "/gate/shut")
    begin = cpu_of(process)
    asking = [client for client in clients if client.says]
    for place in range(0, len(asking), ASKED_AT_ONCE):
        await asyncio.gather(*(client.relay_call() for client in asking[place : place + ASKED_AT_ONCE]))
        while int(await ask_server(port, "/gate")) < min(place + ASKED_AT_ONCE, len(asking)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    measured.asking, begin = cpu_of(process) - begin, cpu_of(process)
    await ask_server(port, "/gate/open")
    await asyncio.sleep(WINDOW_SECONDS)
    measured.streaming, begin = cpu_of(process) - begin, cpu_of(process)
    measured.streamed_seconds = sum(client.words for client in clients) / TOKENS_PER_SECOND
    measured.first_tokens = await asyncio.gather(
        *(_come_late(client, place / len(late)) for place, client in enumerate(late))
    )
    await asyncio.gather(*(client.has_end.wait() for client in (*clients, *late)))
    measured.ending = cpu_of(process) - begin


async def _come_late(client: Client, share: float) -> float:
    await asyncio.sleep(LATE_SECONDS * share)
    return await client.wait_for_first()


class Client:
    """One socket and what it has come to."""

    def __init__(self, socket: ClientConnection, says: str) -> None:
        self.socket, self.says, self.frames, self.words = socket, says, 0, 0
        self.has_begun, self.has_end = asyncio.Event(), asyncio.Event()

    async def relay_call(self) -> None:
        await self.socket.send(self.says)

    async def wait_for_first(self) -> float:
        asked = time.perf_counter()
        await self.relay_call()
        await self.has_begun.wait()
        return time.perf_counter() - asked

    async def listen(self) -> None:
        async for frame in self.socket:
            self.frames += 1
            if said := WORD.findall(str(frame)):
                self.words = int(said[-1]) + 1
                self.has_begun.set()
            if self.words == COUNT and END in str(frame):
                self.has_end.set()
                return


async def _opened(port: int, address: Address) -> ClientConnection:
    headers = {"Cookie": address.cookie, "Origin": f"http://127.0.0.1:{port}"}
    return await connect(
        f"ws://127.0.0.1:{port}{address.path}", additional_headers=headers, compression=None, ping_interval=None
    )
