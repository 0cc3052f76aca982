"""The contract, held against Parley's record and against the plain-Python model that other tests compare it with."""

from __future__ import annotations

from typing import Any

import pytest

from tests.history.conformance.kit import StoreContract
from tests.history.conformance.parley import ParleyStore
from tests.history.conformance.plain import PlainStore
from tests.history.conformance.store import Store


class TestParley(StoreContract):
    @pytest.fixture
    def store(self, ada: Any) -> Store:
        return ParleyStore(ada)


@pytest.mark.any_database
class TestThePlainModel(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return PlainStore()


pytestmark = pytest.mark.django_db
