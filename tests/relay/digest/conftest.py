"""A key, and a relay that writes and digests a journal of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from history.access import keys
from history.models import ApiKey
from project.accounts.models import User
from tests.factories import assert_counts_equal_a_recount
from tests.relay.digest.relayed import Relay


@pytest.fixture
def key(ada: User) -> ApiKey:
    return keys.create(name="laptop", owner=ada, recording="full").api_key


@pytest.fixture
def relay(tmp_path: Path, key: ApiKey) -> Iterator[Relay]:
    """After each test the daily counts equal a recount."""
    yield Relay(tmp_path / "journal", key)
    assert_counts_equal_a_recount()
