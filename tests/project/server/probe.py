"""The whole application with jobs that leave tracks and a socket that stays open, for real servers to run."""

import os
from pathlib import Path
from typing import Any, cast

from django.urls import re_path

from project import asgi
from project.background import jobs
from project.background.jobs import Job
from relay import routing


def leave_track(word: str) -> None:
    # One write of one short line: several processes append to the same file.
    with Path(os.environ["PROBE_TRACKS"]).open("a") as tracks:
        tracks.write(f"{os.getpid()} {word}\n")


def tick() -> None:
    leave_track("tick")


def lead() -> None:
    leave_track("lead")


def fail() -> None:
    leave_track("fail")
    raise RuntimeError("this job always fails")


def say_goodbye() -> None:
    leave_track("goodbye")


async def stay_open(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    await send({"type": "websocket.send", "text": "open"})
    while True:
        if (await receive())["type"] == "websocket.disconnect":
            return


# A short lease, so that a test can wait until a dead holder's runs out.
jobs.LEASE_SECONDS = 1.5
jobs.JOBS[:] = [
    Job(name="tick", run="tests.project.server.probe.tick", every=0.05, once_per="process"),
    Job(name=os.environ["PROBE_LEASE"], run="tests.project.server.probe.lead", every=0.05, once_per="installation"),
    Job(name="goodbye", run="tests.project.server.probe.say_goodbye", every=3600, once_per="process", at_end=True),
]
if os.environ.get("PROBE_FAILS"):
    jobs.JOBS.append(Job(name="fail", run="tests.project.server.probe.fail", every=0.05, once_per="process"))
routing.routes.insert(0, re_path(r"^ws/open$", cast(Any, stay_open)))
application = asgi.application
