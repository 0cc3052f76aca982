"""A second database, for tests that need several processes."""

from collections.abc import Iterator

import pytest

from tests.servers.writers import Elsewhere, elsewhere_in


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with elsewhere_in(tmp_path_factory.mktemp("elsewhere")) as place:
        yield place
