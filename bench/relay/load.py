"""Callers that ask again and again, and what comes of it: how many, how soon, and at whose expense."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.relay.processes import Side

PATH = "/v1/chat/completions"
_EXCHANGE = b"x-parley-exchange-id: "

Body = Callable[[], bytes]


@dataclass
class Run:
    """What one load gave. `digestion` is the digester's CPU, once it was through with it."""

    requests: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    digestion: float = 0.0
    firsts: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.requests / self.seconds

    @property
    def cpu_ms(self) -> float:
        return self.cpu / max(self.requests, 1) * 1000


class Caller:
    """One connection that asks again and again."""

    def __init__(self, side: Side, body: Body, run: Run) -> None:
        self.side, self.body, self.run = side, body, run
        self.exchange = ""

    async def until(self, end: float, *, after: float = 0.0) -> None:
        await asyncio.sleep(after)
        await self.connect()
        while time.perf_counter() < end:
            await self.ask()
        self.writer.close()

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.side.port, limit=2**20)

    async def ask(self) -> None:
        body = self.body()
        head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n%scontent-length: %d\r\n\r\n"
        self.writer.write(head % (PATH.encode(), self.side.headers, len(body)) + body)
        await self._read()
        self.run.requests += 1

    async def _read(self) -> None:
        begun = last = time.perf_counter()
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RuntimeError(head.decode())
        self.exchange = head.partition(_EXCHANGE)[2].split(b"\r\n", 1)[0].decode()
        if b"content-length:" in head:
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await self.reader.readexactly(length)
            return
        is_first = True
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            await self.reader.readexactly(size + 2)
            now = time.perf_counter()
            (self.run.firsts if is_first else self.run.gaps).append(now - (begun if is_first else last))
            is_first, last = False, now
        await self.reader.readexactly(2)


@dataclass(frozen=True, kw_only=True)
class Case:
    """`body` makes one of these for each caller; `spread`: they begin within so many seconds, as people do, instead of
    in step."""

    body: Callable[[], Body]
    at_once: int
    seconds: float
    spread: float = 0.0


def always(body: bytes) -> Callable[[], Body]:
    return lambda: lambda: body


def load(side: Side, case: Case) -> Run:
    run = Run()

    async def all_of_them() -> None:
        end = time.perf_counter() + case.seconds
        callers = [Caller(side, case.body(), run) for _ in range(case.at_once)]
        steps = [place * case.spread / case.at_once for place in range(case.at_once)]
        await asyncio.gather(*(one.until(end, after=after) for one, after in zip(callers, steps, strict=True)))

    before, digested, begun = side.cpu(), side.digestion(), time.perf_counter()
    asyncio.run(all_of_them())
    run.seconds, run.cpu = time.perf_counter() - begun, side.cpu() - before
    side.carried += run.requests
    side.settle()
    run.digestion = side.digestion() - digested
    return run
