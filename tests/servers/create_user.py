"""Makes Ada, her key with the given scopes and her cookie in the database of the environment; prints them as JSON."""

from __future__ import annotations

import json
import sys

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.test import Client  # noqa: E402

from history.access import keys  # noqa: E402
from project.accounts.models import User  # noqa: E402
from relay.models import Agent  # noqa: E402

ada = User.objects.create_user("ada")
key = keys.create(name="program", owner=ada, scopes=sys.argv[1:], recording="full", owner_wide=True)
Agent.objects.update(tools=["current_time", "ten_megabytes"])
client = Client()
client.force_login(ada)
cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
sys.stdout.write(json.dumps({"name": ada.username, "key": key.secret, "cookie": cookie}))
