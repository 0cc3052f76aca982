"""A running relay, a key of Ada's and the vendors' SDKs for it, and providers at the played vendors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from history.access import keys
from project.accounts.models import User
from relay.gateway.references import ownership
from relay.providers import registry
from tests.clients import RunningRelay, run_relay
from tests.vendors.raw_upstream import RawUpstream

if TYPE_CHECKING:
    import anthropic
    import openai
    from google import genai


@pytest.fixture
def relay(transactional_db: None, providers: registry.Router, settings: Any, tmp_path: Path) -> Iterator[RunningRelay]:
    settings.PARLEY_DATA_DIR = tmp_path
    with run_relay() as found:
        yield found


@pytest.fixture
def key(relay: RunningRelay, ada: User) -> str:
    return keys.create(name="laptop", owner=ada, recording="full").secret


# The SDKs are imported by the tests that use them: each takes long to import, and every worker would.


@pytest.fixture
def of_openai(relay: RunningRelay, key: str) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(api_key=key, base_url=f"{relay.url}/v1", max_retries=0) as client:
        yield client


@pytest.fixture
def of_anthropic(relay: RunningRelay, key: str) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(api_key=key, base_url=relay.url, max_retries=0) as client:
        yield client


@pytest.fixture
def of_google(relay: RunningRelay, key: str) -> Iterator[genai.Client]:
    from google import genai

    with genai.Client(api_key=key, http_options=genai.types.HttpOptions(base_url=relay.url)) as client:
        yield client


@pytest.fixture
def bare() -> Iterator[RawUpstream]:
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process notes ids, so an unknown id is refused at once."""
    monkeypatch.setattr(ownership, "RETRY_DELAYS", ())
