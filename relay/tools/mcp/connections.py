"""Connections to MCP servers: made when first needed, kept, and made anew after a death or a change.

They live in a thread with an event loop of its own: the chat's loop and the staff's page both use them, importing the
SDK takes a second, and a server that floods us costs that thread alone. A call that takes too long, or whose server
dies, fails alone. Its connection is given up: calls that go on in it may end, and the next one gets a new connection.
"""

import asyncio
import atexit
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from history.entries import JsonObject
from relay.tools.mcp.config import McpFailure, McpGone, McpSettings
from relay.tools.mcp.shaping import error_text

logger = logging.getLogger(__name__)

# Long enough for a program that is downloaded when it is first started.
SECONDS_TO_CONNECT = 60.0
SECONDS_TO_CLOSE = 8.0
PAGES = 20

T = TypeVar("T")


class Connection:
    """One server, spoken with by the SDK's client within a task of its own, which opens and closes it."""

    def __init__(self, server: McpSettings) -> None:
        from relay.tools.mcp.transports import Notes

        self.server, self.notes = server, Notes()
        self.uses = 0
        self.is_given_up = False
        self.idle = asyncio.Event()
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._live())

    @property
    def secrets(self) -> list[str]:
        return [*self.server.environment.values(), *self.server.headers.values()]

    @property
    def is_usable(self) -> bool:
        return not self.is_given_up and not self.task.done() and not self.notes.has_ended

    async def _live(self) -> None:
        from mcp import Client

        from relay.tools.mcp.transports import open_streams

        try:
            async with Client(open_streams(self.server, self.notes), cache=None) as client:
                if not self.ready.done():
                    self.ready.set_result(client)
                await self.idle.wait()
        except BaseException as error:
            if not self.ready.done():
                self.ready.set_exception(self.failure(error))
            elif not isinstance(error, Exception | asyncio.CancelledError):
                raise
        finally:
            if not self.ready.done():
                self.ready.cancel()

    async def client(self) -> Any:
        try:
            async with asyncio.timeout(SECONDS_TO_CONNECT):
                return await asyncio.shield(self.ready)
        except TimeoutError:
            self.task.cancel()
            raise McpGone(f"{self.server.name} did not answer within {SECONDS_TO_CONNECT:g} seconds") from None

    def give_up(self) -> None:
        """No new call begins here; it ends with the last call."""
        self.is_given_up = True
        if not self.uses:
            self.idle.set()

    def release(self) -> None:
        self.uses -= 1
        if self.is_given_up and not self.uses:
            self.idle.set()

    def failure(self, error: BaseException) -> McpGone:
        """The error without our secrets, also where the server repeats them."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        text = error_text(str(error), self.secrets) or type(error).__name__
        last = error_text(self.notes.error_output.decode("utf-8", "replace"), self.secrets)
        problem = "; ".join(filter(None, [self.notes.problem or text, last and f"last output: {last}"]))
        return McpGone(f"{self.server.name} cannot be used: {problem}")

    async def close(self) -> None:
        self.give_up()
        self.idle.set()
        self.ready.cancel()
        _done, late = await asyncio.wait([self.task], timeout=SECONDS_TO_CLOSE)
        for task in late:
            task.cancel()


class Connections:
    """Those of one process, by the name of the server."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.current: dict[str, Connection] = {}
        self.old: set[Connection] = set()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, name="mcp servers", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def use(self, server: McpSettings, ask: Callable[[Any], Awaitable[T]]) -> T:
        """What `ask` returns for the SDK's client. Runs in the thread; raises McpFailure."""
        from mcp import MCPError

        connection = self._connection(server)
        connection.uses += 1
        try:
            client = await connection.client()
            async with asyncio.timeout(server.seconds):
                return await ask(client)
        except TimeoutError:
            connection.give_up()
            raise McpGone(
                f"{server.name} did not answer within {server.seconds:g} seconds; the call was cancelled"
            ) from None
        except MCPError as error:
            raise self._failure_of(connection, error) from None
        except McpFailure:
            connection.give_up()
            raise
        except Exception as error:  # noqa: BLE001 - any error of a foreign server costs one call
            connection.give_up()
            logger.warning("The MCP server %s made a call fail: %s", server.name, type(error).__name__)
            raise connection.failure(error) from None
        finally:
            connection.release()

    def _failure_of(self, connection: Connection, error: Exception) -> McpFailure:
        """An error that the server sent is an answer; one that says that the connection is gone is not."""
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        if getattr(error, "code", 0) in (CONNECTION_CLOSED, REQUEST_TIMEOUT):
            connection.give_up()
            return connection.failure(error)
        if connection.server.url:  # it may be about the session that a server keeps for us: begin a new one
            connection.give_up()
        return McpFailure(error_text(str(error), connection.secrets))

    def _connection(self, server: McpSettings) -> Connection:
        found = self.current.get(server.name)
        if found is not None and found.is_usable and found.server == server:
            return found
        if found is not None:
            found.give_up()
            self.old.add(found)
            found.task.add_done_callback(lambda _task: self.old.discard(found))
        made = self.current[server.name] = Connection(server)
        return made

    async def close(self) -> None:
        open_ones = [*self.current.values(), *self.old]
        self.current.clear()
        await asyncio.gather(*(one.close() for one in open_ones), return_exceptions=True)


async def _all_tools(client: Any) -> list[Any]:
    page = await client.list_tools()
    found = list(page.tools)
    for _ in range(PAGES):
        if not page.next_cursor:
            break
        page = await client.list_tools(cursor=page.next_cursor)
        found += page.tools
    return found


_lock = threading.Lock()
_connections: Connections | None = None


def connections() -> Connections:
    global _connections
    with _lock:
        if _connections is None or _connections.pid != os.getpid():
            _connections = Connections()
            atexit.register(close)
        return _connections


async def call(server: McpSettings, tool: str, arguments: JsonObject) -> Any:
    """The SDK's result, also an error result. From any event loop. Cancelling this cancels the call."""
    ours = connections()
    work = ours.use(server, lambda client: client.call_tool(tool, dict(arguments)))
    return await asyncio.wrap_future(ours.submit(work))


def list_tools(server: McpSettings) -> list[Any]:
    """From a thread that may wait."""
    ours = connections()
    return ours.submit(ours.use(server, _all_tools)).result(SECONDS_TO_CONNECT + server.seconds * 2)


def close() -> None:
    """End all of them, and the programs behind them; a second call finds nothing to do."""
    global _connections
    with _lock:
        ours, _connections = _connections, None
    if ours is None or ours.pid != os.getpid():
        return
    with suppress(TimeoutError):
        ours.submit(ours.close()).result(SECONDS_TO_CLOSE + 2)
    ours.loop.call_soon_threadsafe(ours.loop.stop)
    ours.thread.join(2)
