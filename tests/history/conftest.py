"""A second database, for tests that need several processes."""

from collections.abc import Iterator

import pytest

from tests.servers.writers import Writers, start_writers


@pytest.fixture(scope="session")
def writers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writers]:
    with start_writers(tmp_path_factory.mktemp("writers")) as place:
        yield place
