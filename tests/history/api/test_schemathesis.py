"""REST: schemathesis sends requests within and outside the schema, and finds nothing.

Each operation is called with the owner's key and an existing session. Responses must have the form and status of the
schema, invalid requests must be refused, and nothing may be a server error. Examples are deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
import schemathesis
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, settings
from schemathesis.config import SchemathesisConfig

from history.api.schema import schema
from history.models import ImportJob
from history.record import exchanges, recorder
from project.accounts.models import User
from tests.clients import create_secret
from tests.factories import model_input, model_output, tool_request, tool_result, tool_results

pytest_plugins = ["schemathesis.pytest.plugin"]
pytestmark = [pytest.mark.any_database, pytest.mark.runs_first]

CONFIG = SchemathesisConfig.from_dict(
    {
        "generation": {"deterministic": True, "max-examples": 5},
        # Words from our own code would be others with every change of it.
        "analysis": {"constants": {"enabled": False}},
        # An If-Match with an unknown tag is well-formed, too.
        "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "3xx", 403, 404, 412]}},
    }
)
api_schema = schemathesis.openapi.from_dict(schema(), config=CONFIG)
api_schema.app = get_wsgi_application()


@pytest.fixture
def _one_connection() -> Iterator[None]:
    """All requests of a test are one transaction: none of them may close its connection, as a server would."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture
def place(db: None, ada: User) -> dict[str, str]:
    session = recorder.start_session(owner=ada, source="relay")
    entries = [
        model_input("punched cards"),
        model_output("I'll look.", tool_request("c1")),
        tool_results(tool_result("c1")),
        model_output("None."),
    ]
    recorder.append_many(session, entries, after=0)
    exchange = exchanges.open_exchange(session, owner=ada, after=4)
    done = ImportJob.objects.create(owner=ada, state=ImportJob.State.DONE)
    return {"session_id": str(session.pk), "exchange_id": str(exchange.pk), "import_id": str(done.pk)}


@pytest.fixture
def key(ada: User) -> str:
    return create_secret(ada, "read", "write", "delete", "export", "import", owner_wide=True)


@pytest.mark.usefixtures("_one_connection")
@api_schema.parametrize()
@settings(suppress_health_check=list(HealthCheck))
def test_schemathesis_finds_nothing(case: Any, place: dict[str, str], key: str) -> None:
    """A well-formed id in the path is replaced by an existing one."""
    if case.path.endswith("/export") and case.query.get("report", False) in (False, "false"):
        case.query["report"] = "true"  # a stream is read by another thread, which is outside of our transaction
    for name, value in case.path_parameters.items():
        if is_id(value):
            case.path_parameters[name] = place[name]
    # Its client does not read what is compressed.
    case.call_and_validate(headers={"Authorization": f"Bearer {key}", "Accept-Encoding": "identity"})


def is_id(value: Any) -> bool:
    try:
        return bool(UUID(str(value)))
    except ValueError:
        return False
