"""What a program says through the relay is there at once: in the list, and on the page that has the session open."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.servers.installation import IMPATIENT_APP, Installation, Server, create_installation
from tests.servers.processes import wait_for
from tests.vendors import says

pytestmark = pytest.mark.runs_first


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, own_database: None) -> Iterator[Installation]:
    with create_installation(tmp_path_factory.mktemp("installation"), scopes=("relay", "read")) as installation:
        yield installation


def relayed(key: str, server: Server, messages: list[dict[str, str]], session: str) -> str:
    """The id of the session, as the program is told it."""
    body = json.dumps({"model": "model", "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "x-session-id": session}
    request = Request(f"http://127.0.0.1:{server.port}/v1/chat/completions", data=body, headers=headers)
    with urlopen(request, timeout=30) as response:
        response.read()
        return str(response.headers["X-Parley-Session-Id"])


def is_there(installation: Installation, server: Server, path: str, words: str) -> bool:
    try:
        return words in installation.read(server, path)
    except OSError:
        return False


def test_a_relayed_session_appears_and_grows_on_open_pages_within_a_second(installation: Installation) -> None:
    with installation.serving("uvicorn", application=IMPATIENT_APP) as server:
        talk: list[dict[str, Any]] = [{"role": "user", "content": "Tell me of fjords."}]
        installation.plays(says("They are deep."))
        session = relayed(installation.ada.key, server, talk, "ses_1")
        wait_for(lambda: is_there(installation, server, f"/s/{session}/", "They are deep."), what="the relayed session")
        page = installation.page(server, session)
        talk += [{"role": "assistant", "content": "They are deep."}, {"role": "user", "content": "How deep?"}]
        installation.plays(says("A thousand metres."))
        began = time.monotonic()
        relayed(installation.ada.key, server, talk, "ses_1")
        page.until(lambda page: "A thousand metres." in page.talk, seconds=20)
        # A second, and what a busy machine needs to show it.
        assert time.monotonic() - began < 6
        relayed(installation.ada.key, server, [{"role": "user", "content": "A new topic: lighthouses."}], "ses_2")
        page.until(lambda page: "lighthouses" in page.root.text, seconds=20)
        installation.close_sockets()
