"""One database, played vendors, and servers on it that are started and ended by the test."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.servers.databases import create_migrated_database
from tests.servers.processes import ROOT, Process, clean_environment, free_port, run_manage, run_server
from tests.sockets import ChatPage, ProgramSocket
from tests.vendors import KEYS, Play, Vendors, says

APP = "tests.servers.app:application"
IMPATIENT_APP = "tests.servers.short_timeouts_app:application"
DIALECT = "openai-chat"
CSRF = "c" * 32
PROVIDERS = """
[[providers]]
name = "played"
dialect = "openai-chat"
base_url = "{url}/v1"
api_key = "{key}"
list_models = false
models = [{{ name = "model", window = 200000 }}]
"""


@dataclass(frozen=True, kw_only=True)
class SeededUser:
    name: str
    key: str
    cookie: str


@dataclass(frozen=True)
class Server:
    port: int
    process: Process

    @property
    def pid(self) -> int:
        return self.process.popen.pid


@dataclass
class Installation:
    folder: Path
    vendors: Vendors
    variables: dict[str, str]
    ada: SeededUser
    _sockets: ExitStack = field(default_factory=ExitStack)
    _started: int = 0

    @contextmanager
    def serving(self, server: str = "uvicorn", *, application: str = APP, redis: str = "") -> Iterator[Server]:
        """Only a hasty one looks after what others have left behind: that must be over while a test waits."""
        port, self._started = free_port(), self._started + 1
        looks_after = {"PARLEY_BACKGROUND": "on" if application == IMPATIENT_APP else "off"}
        environment = clean_environment(**self.variables, **looks_after, **({"REDIS_URL": redis} if redis else {}))
        log = self.folder / f"{server}-{self._started}.log"
        with run_server(server, application=application, port=port, log=log, environment=environment) as process:
            yield Server(port, process)

    def plays(self, *plays: Play) -> None:
        self.vendors.plays(DIALECT, *plays)

    def program(self, server: Server, *, receive_buffer: int = 0) -> ProgramSocket:
        """`receive_buffer`: how many bytes its system takes before the program reads them."""
        headers = {"Authorization": f"Bearer {self.ada.key}"}
        return ProgramSocket(self._connect(server, "/ws/v1/", headers, receive_buffer=receive_buffer))

    def page(self, server: Server, session: str) -> ChatPage:
        """Loaded and connected, as a browser does it."""
        page = ChatPage(self.read(server, f"/s/{session}/"))
        page.socket = self._connect(server, page.socket_address, self._cookies())
        return page

    def read(self, server: Server, path: str) -> str:
        return self._read_response(Request(f"http://127.0.0.1:{server.port}{path}", headers=self._cookies()))

    def post(self, server: Server, path: str, fields: str = "") -> str:
        """A form of our own pages."""
        headers = {**self._cookies(), "X-CSRFToken": CSRF}
        return self._read_response(
            Request(f"http://127.0.0.1:{server.port}{path}", headers=headers, data=fields.encode())
        )

    def _read_response(self, request: Request) -> str:
        with urlopen(request, timeout=30) as response:
            return str(response.read().decode())

    def _cookies(self) -> dict[str, str]:
        return {"Cookie": f"parley_session={self.ada.cookie}; parley_csrf={CSRF}"}

    def _connect(
        self, server: Server, path: str, headers: dict[str, str], *, receive_buffer: int = 0
    ) -> ClientConnection:
        address, origin = f"ws://127.0.0.1:{server.port}{path}", Origin(f"http://127.0.0.1:{server.port}")
        # No pings: a test that does not listen for a while is not gone.
        opened = connect(
            address,
            origin=origin,
            additional_headers=headers,
            max_size=64 * 1024 * 1024,
            open_timeout=30,
            ping_interval=None,
            close_timeout=1,
            **(_slow_options(server.port, receive_buffer) if receive_buffer else {}),
        )
        connected: ClientConnection = self._sockets.enter_context(opened)
        return connected

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_manage(*arguments, **self.variables)

    def close_sockets(self) -> None:
        self._sockets.close()


def _slow_options(port: int, receive_buffer: int) -> dict[str, Any]:
    """A client that takes few bytes before it reads, and none of them compressed."""
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    small.connect(("127.0.0.1", port))
    return {"sock": small, "max_queue": 1, "compression": None}


@contextmanager
def create_installation(
    folder: Path, *, scopes: tuple[str, ...] = ("read", "write", "delete")
) -> Iterator[Installation]:
    with create_migrated_database(folder) as url, Vendors() as vendors:
        providers = folder / "providers.toml"
        providers.write_text(PROVIDERS.format(url=vendors.url, key=KEYS["openai"]))
        variables = {
            "DATABASE_URL": url,
            "PARLEY_DATA_DIR": str(folder / "data"),
            "PARLEY_PROVIDERS": str(providers),
            "PARLEY_DEMO_MODEL": "off",
            "PARLEY_CHAT_MESSAGES_PER_MINUTE": "0",
        }
        installation = Installation(folder, vendors, variables, SeededUser(**_people(variables, scopes)))
        yield installation
        installation.close_sockets()


def _people(variables: dict[str, str], scopes: tuple[str, ...]) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.servers.create_user", *scopes]
    done = subprocess.run(command, cwd=ROOT, env=clean_environment(**variables), capture_output=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def slow_words(count: int, *, seconds: float) -> Play:
    """w0 w1 w2 …, one word every so many seconds."""
    return replace(says(*(f"w{number} " for number in range(count))), delay=seconds)


def numbered_words(count: int) -> list[str]:
    return [f"w{number}" for number in range(count)]
