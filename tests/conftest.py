"""What every test can ask for: an owner, a stranger, one of the staff; vendors that are played on loopback.

No test can reach a real vendor: the dialer refuses every host that is not this machine, in this process and in those
that tests start, and no key of the developer's is left in the settings.
"""

import gc
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings as live_settings
from django.db import connection
from django.test import TransactionTestCase, override_settings
from django.utils import translation
from hypothesis import settings as hypothesis_settings
from hypothesis.internal.conjecture import providers as hypothesis_values
from pytest_django import DjangoDbBlocker

from history.db.process_state import process_state
from history.dialects import DIALECTS
from project.accounts.models import User
from relay.providers import registry
from relay.providers.http import HttpProvider
from tests.servers import databases, on_postgres
from tests.servers.processes import HERMETIC, VENDOR_VARIABLES
from tests.vendors import Vendors
from tests.vendors.setup import endpoint_at

# Until all tests are collected next to nothing becomes garbage.
gc.disable()

# For processes that a test starts with the environment it has.
os.environ.update(HERMETIC)

# The same examples in every run, so that failures can be repeated; `make faults` takes new ones.
hypothesis_settings.register_profile("parley", derandomize=True, deadline=None)
hypothesis_settings.load_profile("parley")
# It would take texts out of whichever of our modules are loaded, and so have other examples in another order of files.
hypothesis_values._get_local_constants = lambda: hypothesis_values._local_constants

SAME_ON_EACH = re.compile(r"^pytestmark = .*(?:any|no)_database", re.MULTILINE)

# Fixtures that give processes a database of their own request `own_database`.
DATABASE_FIXTURES = frozenset({"db", "transactional_db", "own_database"})


@pytest.fixture(scope="session", autouse=True)
def _own_data_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test writes into the developer's data directory, and passwords are hashed fast."""
    with override_settings(
        PARLEY_DATA_DIR=tmp_path_factory.mktemp("data"),
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
        PARLEY_LOOPBACK_ONLY=True,
        PARLEY_FIND_LOCAL_MODELS=False,
        PARLEY_PROVIDERS=(),
        PARLEY_API_REQUESTS_PER_MINUTE=0,
        # Static files are looked for when one is asked for, not all of them by each client that a test makes.
        WHITENOISE_AUTOREFRESH=True,
        **dict.fromkeys(VENDOR_VARIABLES, ""),
    ):
        yield


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A copy of the tables that the migrations made.

    On SQLite a file, as in real life: the memory that Django would take knows neither WAL nor waiting for a lock.
    """
    of_tests = connection.settings_dict["TEST"]
    of_tests["MIGRATE"] = False
    if connection.vendor == "sqlite":
        file = tmp_path_factory.mktemp("database") / "test.sqlite3"
        databases.copy_migrated_file(file)
        of_tests["NAME"] = str(file)
    else:
        of_tests["TEMPLATE"] = databases.database_with_tables()


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """A file is ready before Django looks for it."""
    return connection.vendor == "sqlite"


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """The first test finds the same as all others: nothing, not even the agents of a new installation."""
    with django_db_blocker.unblock():
        databases.clear_tables()


@pytest.fixture(scope="session", autouse=True)
def _tables_are_emptied_and_no_more() -> Iterator[None]:
    """After a test with transactions of its own Django would also make all permissions anew: half of what it costs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda self: databases.clear_tables())
        yield


@pytest.fixture(autouse=True)
def _in_english() -> Iterator[None]:
    """A request leaves its reader's language on the thread, and the next test would speak it."""
    translation.deactivate()
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def _reset_process_state() -> Iterator[None]:
    """No cache, counter or open file of a process outlives the test that created it."""
    yield
    process_state.reset()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        stack = ExitStack()
        stack.enter_context(databases.shared_folder())
        config.add_cleanup(stack.close)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was imported and collected stays, so the garbage collector need not look through it."""
    gc.set_threshold(10_000, 50, 50)
    gc.enable()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What would be left out is not even read: to import browsers and the vendors' SDKs takes as long as many tests."""
    if collection_path.name == "browser" and config.option.markexpr == "not browser":
        return True
    if config.getoption("--database-only") and _is_the_same_on_each(collection_path):
        return True
    return None


def _is_the_same_on_each(path: Path) -> bool:
    return path.suffix == ".py" and SAME_ON_EACH.search(path.read_text()) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--database-only", action="store_true", help="leave out what is the same on every database")
    parser.addoption("--pictures", action="store_true", help="keep pictures of the pages that browser tests see")
    parser.addoption("--update-snapshots", action="store_true", help="record what tests/snapshots compares with")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, so that no core waits for another's at the end. On a second database, what asks for one."""
    items.sort(key=lambda item: item.get_closest_marker("runs_first") is None)
    if not config.getoption("--database-only"):
        _check_tests_without_database(items)
        return
    asking = [item for item in items if _asks_for_a_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _asks_for_a_database(item)])
    items[:] = asking


def _check_tests_without_database(items: list[pytest.Item]) -> None:
    """A file that is left out on PostgreSQL as a whole must not gain a test that needs a database unnoticed."""
    for item in items:
        if item.get_closest_marker("no_database") and _asks_for_a_database(item):
            raise pytest.UsageError(f"{item.nodeid} asks for a database: move it to a file without `no_database`.")


def _asks_for_a_database(item: pytest.Item) -> bool:
    if item.get_closest_marker("any_database"):
        return False
    names = set(getattr(item, "fixturenames", ()))
    return bool(names & DATABASE_FIXTURES) or item.get_closest_marker("django_db") is not None


@pytest.fixture(scope="session")
def own_database() -> None:
    """Requested by fixtures that start processes with a database of their own: their tests run on PostgreSQL too."""


@pytest.fixture
def data_dir() -> Path:
    return Path(live_settings.PARLEY_DATA_DIR)


@pytest.fixture
def ada(django_user_model: type[User]) -> User:
    """The owner."""
    return django_user_model.objects.create_user("ada", password="analytical engine")


@pytest.fixture
def bob(django_user_model: type[User]) -> User:
    """A stranger, who must see nothing of Ada's."""
    return django_user_model.objects.create_user("bob", password="a stranger")


@pytest.fixture
def staff(django_user_model: type[User]) -> User:
    """Staff, but no superuser."""
    return django_user_model.objects.create_user("grace", password="nanoseconds", is_staff=True)


@pytest.fixture
def vendors() -> Iterator[Vendors]:
    """All four vendors' servers, on loopback."""
    with Vendors() as server:
        yield server


@pytest.fixture
def providers(vendors: Vendors) -> registry.Router:
    """Providers anthropic, openai (Responses), openai-chat and gemini, at the played vendors: `model` of each."""
    router = registry.Router([HttpProvider(endpoint_at(vendors, dialect)) for dialect in DIALECTS])
    process_state.set(router)
    return router


@pytest.fixture
def store(settings: Any, tmp_path: Path) -> Iterator[redis.Redis]:
    """A Redis of this test alone."""
    (folder := tmp_path / "redis").mkdir()
    with on_postgres.redis(folder) as url:
        settings.REDIS_URL = url
        with redis.Redis.from_url(url) as client:
            yield client
