"""The alert rules and the dashboard ask for metrics that exist, and the page on operations explains each alert."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from tests.servers.processes import ROOT

pytestmark = pytest.mark.django_db

RULES = (ROOT / "deploy" / "prometheus-alerts.yml").read_text(encoding="utf-8")
DASHBOARD = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bparley_\w+", text))


def expressions() -> dict[str, list[str]]:
    return {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in DASHBOARD["panels"]}


@pytest.fixture
def served(staff: Any, client: Client) -> set[str]:
    staff.is_superuser = True
    staff.save()
    client.force_login(staff)
    response = client.get("/metrics")
    assert response.status_code == 200
    return set(re.findall(r"^# TYPE (\w+)", response.content.decode(), re.MULTILINE))


def test_alert_rules_ask_for_metrics_that_are_served(served: set[str]) -> None:
    assert names_in(RULES) <= served


def test_every_panel_asks_for_metrics_that_are_served(served: set[str]) -> None:
    for title, asked in expressions().items():
        assert asked, title
        assert all(names_in(expression) and names_in(expression) <= served for expression in asked), title


def test_every_metric_is_on_the_dashboard_or_documented_alone(served: set[str]) -> None:
    shown = set().union(*(names_in(expression) for asked in expressions().values() for expression in asked))
    assert served - shown == {"parley_journal_lost_bytes_total", "parley_journal_untold_bytes"}


def test_every_alert_has_a_row_that_says_what_to_do() -> None:
    alerts = re.findall(r"- alert: (\w+)", RULES)
    assert len(alerts) == len(set(alerts)) == RULES.count("expr:") == RULES.count("summary:")
    assert re.findall(r"^\| `(Parley\w+)` \|", PAGE, re.MULTILINE) == alerts
