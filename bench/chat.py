"""What a chat turn costs: a question, 200 streamed tokens and the end, against a bare consumer that only sends tokens.

Each person has a page open in a session of their own and asks once. Everything that the chat does is counted: reading
and storing the message, rendering the context, noting the answer, showing it, storing it and showing the end. It is
measured with people who ask one after the other, with a hundred who ask at the same moment, and with many pages that
watch one answer. The model answers each call at once. CPU is the server process's own,
measured in turns with the baseline; clients live in this process.
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
from bench.chat_process import cpu_of, serving
from bench.chat_text import COUNT
from bench.measure import Line, Table, p95

SERVERS = ("Uvicorn", "Daphne")
TURNS, ASK_EVERY = 100, 0.05
CROWD, VIEWERS = 100, 200
# The absolute goals are for two idle cores and one Uvicorn process. The ratios decide, because machines are shared.
MOST_MILLISECONDS, MOST_RATIO = 15, 3.0
MOST_SECONDS, MOST_OF_P95 = 1.0, 0.6
LEAST_ANSWERS, MOST_OF_A_VIEWER = 60.0, 2.0
PATIENCE = 120.0
SETTLE_SECONDS = 1.0  # after the last end, for what follows it: lists are updated, pages are told
WORD, END = re.compile(r"word(\d+)in"), 'id="announcer"'


@dataclass
class Measured:
    """CPU milliseconds of the server for each client, and what came over the sockets."""

    cpu: float = 0.0
    asking: float = 0.0  # the part until every client had its first token
    frames: float = 0.0
    first_tokens: list[float] = field(default_factory=list)  # seconds


def measure(table: Table, *, folder: Path) -> None:
    for server in SERVERS:
        _measure_server(table, server, folder=folder)


def _measure_server(table: Table, server: str, *, folder: Path) -> None:
    bare = [Address("/ws/bare/", says="go")]
    people, crowd = own_sessions(server, TURNS), own_sessions(f"{server} crowd", CROWD)
    with serving(server, folder) as (port, process):
        run(port, process, own_sessions(f"{server} warm", 5), every=ASK_EVERY)
        run(port, process, bare * 20)
        before = run(port, process, bare * TURNS, every=ASK_EVERY)
        turns = run(port, process, people, every=ASK_EVERY)
        after = run(port, process, bare * TURNS, every=ASK_EVERY)
        _add_turns(table, server, turns, statistics.mean((before.cpu, after.cpu)))
        _add_crowd(table, server, run(port, process, crowd))
        before = run(port, process, bare * VIEWERS)
        _add_viewers(table, server, run(port, process, one_session(server, VIEWERS)), before)
    kib = [_idle(server, addresses, folder=folder) for addresses in (own_sessions(f"{server} idle", 200), bare * 200)]
    table.add(Line(f"{server}: memory of an idle socket", kib[0], "KiB", note=f"bare {kib[1]:.0f} KiB"))


def _add_turns(table: Table, server: str, ours: Measured, bare: float) -> None:
    decides = server == "Uvicorn"
    goal = f", goal {MOST_MILLISECONDS} ms on idle cores" if decides else ""
    note = f"{ours.cpu:.1f} ms against {bare:.1f} ms{goal}; {ours.frames:.0f} frames, load {os.getloadavg()[0]:.0f}"
    what = f"{server}, {TURNS} turns, a question every {ASK_EVERY * 1000:.0f} ms: CPU of a turn"
    table.add(Line(what, ours.cpu / bare, "×", MOST_RATIO if decides else None, note=note))


def _add_crowd(table: Table, server: str, ours: Measured) -> None:
    decides, middle, last = server == "Uvicorn", statistics.median(ours.first_tokens), p95(ours.first_tokens)
    goal = f", goal {MOST_SECONDS:g} s on idle cores" if decides else ""
    note = f"p50 {middle:.2f} s, p95 {last:.2f} s{goal}"
    what = f"{server}, {CROWD} questions at once"
    table.add(Line(f"{what}: first token, p50 of p95", middle / last, "×", MOST_OF_P95 if decides else None, note=note))
    note = f"by the CPU of an answer: {ours.cpu:.1f} ms, {ours.asking:.1f} ms of it before the last first token"
    goal_line = LEAST_ANSWERS if decides else None
    table.add(Line(f"{what}: answers by one process", 1000 / ours.cpu, "/s", goal_line, at_least=True, note=note))


def _add_viewers(table: Table, server: str, ours: Measured, bare: Measured) -> None:
    goal = MOST_OF_A_VIEWER if server == "Uvicorn" else None
    note = f"{ours.cpu:.1f} ms against {bare.cpu:.1f} ms, {ours.frames:.0f} frames each"
    table.add(
        Line(f"{server}, {VIEWERS} pages watch one answer: CPU of a page", ours.cpu / bare.cpu, "×", goal, note=note)
    )


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


def run(port: int, process: psutil.Process, addresses: Sequence[Address], *, every: float = 0.0) -> Measured:
    """Open all sockets, then ask: one client every so many seconds, 0 means all at once. Ends when all have the end."""
    return asyncio.run(_run(port, process, addresses, every))


async def _run(port: int, process: psutil.Process, addresses: Sequence[Address], every: float) -> Measured:
    clients = [Client(await _opened(port, address), address.says) for address in addresses]
    await asyncio.sleep(SETTLE_SECONDS)
    begin = cpu_of(process)
    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        for place, client in enumerate(clients):
            group.create_task(client.listen())
            if client.says:
                group.create_task(client.ask(after=place * every))
        await asyncio.gather(*(client.has_begun.wait() for client in clients))
        asking = cpu_of(process) - begin
    await asyncio.sleep(SETTLE_SECONDS)
    spent = cpu_of(process) - begin
    await asyncio.gather(*(client.socket.close() for client in clients))
    return Measured(
        cpu=spent / len(clients) * 1000,
        asking=asking / len(clients) * 1000,
        frames=sum(client.frames for client in clients) / len(clients),
        first_tokens=[client.waited for client in clients if client.says],
    )


class Client:
    """One socket and what it has come to."""

    def __init__(self, socket: ClientConnection, says: str) -> None:
        self.socket, self.says, self.frames, self.words = socket, says, 0, 0
        self.has_begun = asyncio.Event()
        self.asked_at = self.waited = 0.0

    async def ask(self, *, after: float) -> None:
        await asyncio.sleep(after)
        self.asked_at = time.perf_counter()
        await self.socket.send(self.says)

    async def listen(self) -> None:
        async for frame in self.socket:
            self.frames += 1
            if said := WORD.findall(str(frame)):
                self.words = int(said[-1]) + 1
                if not self.has_begun.is_set():
                    self.waited = time.perf_counter() - self.asked_at
                    self.has_begun.set()
            if self.words == COUNT and END in str(frame):
                return


async def _opened(port: int, address: Address) -> ClientConnection:
    headers = {"Cookie": address.cookie, "Origin": f"http://127.0.0.1:{port}"}
    return await connect(
        f"ws://127.0.0.1:{port}{address.path}", additional_headers=headers, compression=None, ping_interval=None
    )
