"""Web processes killed while queued chat messages are being sent: each message stays, once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

from tests.servers.installation import IMPATIENT_APP, create_installation, slow_words
from tests.sockets import ProgramSocket

WAITING = 3


def run(folder: Path, server: str, rounds: int) -> str:
    kills, place = max(2, rounds // 4), folder / "queue"
    place.mkdir(exist_ok=True)
    with create_installation(place) as here:
        here.plays(*[slow_words(3, seconds=0.05) for _ in range(kills * (WAITING + 1) * 2)])
        said: dict[str, list[str]] = {}
        for number in range(kills):
            with here.serving(application=IMPATIENT_APP) as web:
                program = here.program(web)
                texts = [f"{number}.{one}" for one in range(WAITING + 1)]
                session = program.request("send", text=texts[0])["session_id"]
                said[session] = [texts[0]]
                for text in texts[1:]:
                    program.request("send", text=text)
                    said[session].append(text)
                time.sleep(random.uniform(0, 1))  # noqa: S311
                web.process.kill()
            here.close_sockets()
        with here.serving(application=IMPATIENT_APP) as web:
            for session, texts in said.items():
                _check(here.program(web), session, texts)
    return f"{kills} kills, {kills * (WAITING + 1)} messages acknowledged, each there once and in order"


def _check(program: ProgramSocket, session: str, texts: list[str]) -> None:
    program.request("open", session=session)
    told = program.request("history", session=session, count=100)["messages"]
    sent = [one["content"] for one in told if one["role"] == "user" and one["content"] in texts]
    queued = [one["text"] for one in program.request("queue", session=session)["queued"]]
    assert Counter(sent + queued) == Counter(texts), f"of {texts}, {sent} were sent and {queued} wait"
    assert sent + queued == texts, f"the order is {sent + queued}"
