"""Changes of a session over REST reach its open pages and its running answer."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer

from history.models import Session
from project.accounts.models import User
from relay.live.groups import session_group, user_group
from relay.models import Run
from tests.clients import ApiClient
from tests.factories import create_chat


@pytest.mark.django_db(transaction=True)
async def test_open_pages_hear_of_a_new_title_and_of_a_delete(ada: User) -> None:
    session = await sync_to_async(create_chat)(ada, "hello")
    layer = get_channel_layer()
    assert layer is not None
    channel = await layer.new_channel()
    for group in (user_group(ada.pk), session_group(session.pk)):
        await layer.group_add(group, channel)
    api = await sync_to_async(ApiClient)(ada)
    for method, body in (("PATCH", {"title": "The loom"}), ("DELETE", None)):
        await sync_to_async(api.call)(method, f"/sessions/{session.pk}", body)
        heard = [await asyncio.wait_for(layer.receive(channel), 5) for _ in range(2)]
        assert {message["type"] for message in heard} == {"sidebar.changed", "session.changed"}


@pytest.mark.django_db
def test_what_is_being_answered_in_a_deleted_session_is_stopped(ada: User) -> None:
    session: Session = create_chat(ada, "hello")
    run = Run.objects.create(session=session, owner=ada)
    assert ApiClient(ada).call("DELETE", f"/sessions/{session.pk}").status_code == 204
    run.refresh_from_db()
    assert run.stop_requested_at is not None
