"""`python -m tests.relay.live.context_hash SESSION LEAF`: the hash of what a model would be told by this process."""

from __future__ import annotations

import sys
from hashlib import sha256
from typing import Any
from uuid import UUID

import django


def main(session_id: UUID, leaf: int) -> None:
    from history.models import Session
    from relay.agents.requests import render_call
    from relay.agents.settings import find_agent
    from relay.providers.http import Route
    from tests.factories import context_to_bytes
    from tests.relay.agents.compression_helpers import SMALL
    from tests.relay.providers.scripted import ScriptedProvider

    provider = ScriptedProvider("Not used.", models=SMALL)
    route = Route(provider=provider, model=provider.models[0])
    options: Any = {"agent": find_agent(""), "role": "executor", "route": route, "client": {}}
    made = render_call(session_id, owner=Session.objects.get(pk=session_id).owner, leaf=leaf, **options)
    sys.stdout.write(sha256(context_to_bytes(made.context)).hexdigest())


if __name__ == "__main__":
    django.setup()
    main(UUID(sys.argv[1]), int(sys.argv[2]))
