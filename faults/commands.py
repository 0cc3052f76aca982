"""Random commands of several sockets at once (send, stop, queue, edit, delete), with servers killed in the middle."""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.servers.installation import IMPATIENT_APP, Installation, Server, create_installation, slow_words
from tests.sockets import ProgramSocket
from tests.vendors import asks

SOCKETS, COMMANDS = 4, 12
SESSIONS = 2


class Client:
    """Sends random commands and keeps what was acknowledged."""

    def __init__(self, number: int, program: ProgramSocket, sessions: list[str]) -> None:
        self.number, self.program, self.sessions = number, program, sessions
        self.sent: list[str] = []  # texts, in the order in which they were acknowledged
        self.withdrawn = 0
        self.problems: list[dict[str, Any]] = []

    def run(self) -> None:
        try:
            for number in range(COMMANDS):
                self._step(number)
                time.sleep(random.uniform(0, 0.3))  # noqa: S311
        except (ConnectionClosed, AssertionError, OSError, EOFError):
            return  # the server was killed

    def _step(self, number: int) -> None:
        session = random.choice(self.sessions)  # noqa: S311
        kind = random.choice(["send"] * 5 + ["tool", "stop", "unqueue", "send_queued", "queue", "history"])  # noqa: S311
        if kind in ("send", "tool"):
            text = f"{self.number}.{number}" if kind == "send" else "/current_time"
            frame = self._ask("send", session=session, text=text)
            if frame["type"] == "send" and kind == "send":
                self.sent.append(text)
        else:
            frame = self._ask(kind, session=session)
            if frame["type"] == "unqueue":
                self.withdrawn += frame["withdrawn"]

    def _ask(self, kind: str, **what: Any) -> dict[str, Any]:
        request_id = f"{kind}-{len(self.program.frames)}"
        if "session" in what:
            self.program.socket.send(json.dumps({"type": "open", "id": f"o{request_id}", "session": what["session"]}))
            self.program.until(lambda frame: frame.get("id") == f"o{request_id}")
        self.program.socket.send(json.dumps({"type": kind, "id": request_id, **what}))
        frame = self.program.until(lambda frame: frame.get("id") == request_id, seconds=30)
        if frame["type"] == "error" and frame["code"] == "internal":
            self.problems.append(frame)
        return frame


def run(folder: Path, server: str, rounds: int) -> str:
    times, acknowledged, kills = max(2, rounds // 4), 0, 0
    with create_installation(Path(tempfile.mkdtemp(dir=folder))) as installation:
        for number in range(times):
            is_killed = number % 2 == 1
            acknowledged += _round(installation, is_killed=is_killed)
            kills += is_killed
        found = installation.manage("history", "verify")
        assert found.returncode == 0, found.stdout + found.stderr
    return f"{times} rounds, {kills} kills: {acknowledged} messages acknowledged, each there once; verified"


def _round(installation: Installation, *, is_killed: bool) -> int:
    plays = [slow_words(3, seconds=0.05) for _ in range(SOCKETS * COMMANDS * 2)]
    plays[3::7] = [asks(("call", "current_time", "{}"))] * len(plays[3::7])
    installation.plays(*plays)
    with installation.serving(application=IMPATIENT_APP) as web:
        sessions = [_begin(installation, web) for _ in range(SESSIONS)]
        clients = [Client(number, installation.program(web), sessions) for number in range(SOCKETS)]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        if is_killed:
            time.sleep(random.uniform(0.5, 3))  # noqa: S311
            web.process.kill()
        for thread in threads:
            thread.join(120)
        installation.close_sockets()
    with installation.serving(application=IMPATIENT_APP) as web:
        _check(installation, web, clients, sessions)
        installation.close_sockets()
    installation.vendors.forget()
    return sum(len(client.sent) for client in clients)


def _begin(installation: Installation, web: Server) -> str:
    program = installation.program(web)
    sent = program.request("send", text="begin")
    program.ended(sent["run"])
    return str(sent["session_id"])


def _check(installation: Installation, web: Server, clients: list[Client], sessions: list[str]) -> None:
    problems = [problem for client in clients for problem in client.problems]
    assert not problems, problems[0]
    program, found, end = installation.program(web), Counter[str](), time.monotonic() + 60
    for session in sessions:
        while program.request("open", session=session)["running"]:
            assert time.monotonic() < end, "a run does not end"
            time.sleep(1)
        said = installation.manage("shell", "--no-imports", "--command", TEXTS.format(session=session))
        found.update(json.loads(said.stdout))
    acknowledged = Counter(text for client in clients for text in client.sent)
    twice = [text for text, count in found.items() if count > 1 and "." in text and not text.startswith("/")]
    assert not twice, f"there twice: {twice}"
    missing = acknowledged - found
    withdrawn = sum(client.withdrawn for client in clients)
    assert sum(missing.values()) <= withdrawn, f"lost: {missing}, {withdrawn} were withdrawn"


TEXTS = """
import json
from history.models import Message
from relay.models import QueuedMessage
said = list(Message.objects.filter(session="{session}", kind="model_input").values_list("content", flat=True))
print(json.dumps(said + list(QueuedMessage.objects.filter(session="{session}").values_list("text", flat=True))))
"""
