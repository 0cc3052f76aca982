"""Import of the admin's pages: by URLs and checks, not by every command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.processes import ROOT, clean_environment

pytestmark = pytest.mark.no_database

# What takes longest to import, and few commands need.
SLOW = ["aiohttp", "history.admin.sessions", "relay.admin.agents", "rest_framework.views", "rich.console"]
SCRIPT = f"""
import json, sys
import django
django.setup()
from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.core import checks
from history.management.commands import keys
at_start = [name for name in {SLOW} if name in sys.modules]

class WrongPage(admin.ModelAdmin):
    list_display = ["no_such_column"]

admin.site.register(ContentType, WrongPage)
errors = [error.id for error in checks.run_checks(tags=["admin"])]
print(json.dumps([at_start, errors, "relay.admin.agents" in sys.modules]))
"""


def test_a_command_imports_no_admin_pages_and_checks_look_at_all(tmp_path: Path) -> None:
    environment = clean_environment(PARLEY_DATA_DIR=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert json.loads(done.stdout) == [[], ["admin.E108"], True], done.stderr.decode()
