"""Settings of a server on which no variable is set."""

from __future__ import annotations

from pathlib import Path

import pytest

from project.settings import env
from tests.servers.processes import load_settings
from tests.snapshots.conftest import Snapshot

pytestmark = pytest.mark.any_database

OURS = ("PARLEY_", "CHAT_HISTORY_")
# Variables that set a setting of Django under its own name.
SETTING_OF = {"PARLEY_LANGUAGE": "LANGUAGE_CODE", "PARLEY_TIME_ZONE": "TIME_ZONE"}
# Generated at the first start.
SECRETS = {"SECRET_KEY", "PARLEY_FINGERPRINT_KEY"}


def test_variables_and_settings_have_the_recorded_defaults(snapshot: Snapshot, tmp_path: Path) -> None:
    # Empty counts as not set, and hides what a developer has in `.env`.
    found = load_settings(**{**dict.fromkeys(env.names, ""), "PARLEY_DATA_DIR": str(tmp_path)})
    variables = set(found["env"].names)
    # Without a variable of their own: read from a file that a variable names.
    derived = {name for name in found if name.startswith(OURS)} - variables

    def default(name: str) -> str:
        shown = "(secret)" if name in SECRETS else repr(found[SETTING_OF.get(name, name)])
        return shown.replace(str(tmp_path), "<data>").replace("PosixPath", "Path")

    snapshot(
        "settings.json",
        {
            "variables": {name: default(name) for name in variables},
            "derived": {name: default(name) for name in derived},
        },
    )
