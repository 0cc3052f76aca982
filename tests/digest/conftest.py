"""A key, and a relay that writes and digests a journal of its own."""

from pathlib import Path

import pytest

from history import keys
from history.models import ApiKey
from project.accounts.models import User
from tests.digest.relayed import Relay


@pytest.fixture
def key(ada: User) -> ApiKey:
    return keys.create(name="laptop", owner=ada, recording="full").api_key


@pytest.fixture
def relay(tmp_path: Path, key: ApiKey) -> Relay:
    return Relay(tmp_path / "journal", key)
