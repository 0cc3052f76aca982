"""A relay that listens, a key of Ada's for it, and providers at the played vendors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from history import keys
from project.accounts.models import User
from relay.gateway import ownership
from relay.providers import registry
from tests.gateway.bare import Bare
from tests.gateway.relayed import Relay, relaying


@pytest.fixture
def relay(transactional_db: None, providers: registry.Router, settings: Any, tmp_path: Path) -> Iterator[Relay]:
    settings.PARLEY_DATA_DIR = tmp_path
    with relaying() as found:
        yield found


@pytest.fixture
def key(relay: Relay, ada: User) -> str:
    return keys.create(name="laptop", owner=ada, recording="full").secret


@pytest.fixture
def bare() -> Iterator[Bare]:
    with Bare() as upstream:
        yield upstream


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was not given will not be found a moment later: nobody else is given anything."""
    monkeypatch.setattr(ownership, "ASKED_AGAIN", ())
