"""The page and the download: the owner, staff, a stranger; and that it is a stream."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Permission
from django.db import connections
from django.test import AsyncClient, Client

from history.models import AuditEvent, Session
from project.accounts.models import User
from tests.factories import create_chat


@pytest.fixture
def session(ada: User) -> Session:
    return create_chat(ada, "hello", "hi")


pytestmark = pytest.mark.django_db(transaction=True)


def test_a_page_asks_for_the_format_and_keeps_what_was_picked(client: Client, ada: User, session: Session) -> None:
    client.force_login(ada)
    text = client.get("/history/export/", {"session": str(session.pk)}).content.decode()
    assert f'value="{session.pk}"' in text
    assert 'value="markdown"' in text
    assert client.post("/history/export/", {"session": session.pk, "format": "docx"}).status_code == 422


async def downloaded(client: AsyncClient, **params: str) -> tuple[Any, bytes]:
    response: Any = await client.get("/history/export/", params)
    assert response.status_code == 200
    assert response.is_async
    return response, b"".join([piece async for piece in response.streaming_content])


async def test_the_owner_downloads_one_session_or_all_of_them(
    async_client: AsyncClient, ada: User, session: Session
) -> None:
    await async_client.aforce_login(ada)
    response, content = await downloaded(async_client, session=str(session.pk), format="json")
    assert f"session_{session.created_at:%Y%m%d}_{session.pk}.json" in response["Content-Disposition"]
    assert json.loads(content)["session_id"] == str(session.pk)
    await sync_to_async(create_chat)(ada, "another")
    response, content = await downloaded(async_client, format="markdown")
    assert response["Content-Type"] == "application/zip"
    await sync_to_async(connections.close_all)()


async def test_strangers_get_404_and_anonymous_users_sign_in(
    async_client: AsyncClient, bob: User, session: Session
) -> None:
    address = f"/history/export/?format=jsonl&session={session.pk}"
    assert (await async_client.get(address)).status_code == 302
    await async_client.aforce_login(bob)
    assert (await async_client.get(address)).status_code == 404
    assert (await async_client.get(f"/history/export/?format=jsonl&session={uuid4()}")).status_code == 404
    assert (await async_client.get("/history/export/?format=jsonl&session=x")).status_code == 404
    _, content = await downloaded(async_client, format="jsonl", all="1")
    assert b"hello" not in content
    await sync_to_async(connections.close_all)()


def test_staff_say_why_or_may_not(client: Client, staff: User, session: Session) -> None:
    client.force_login(staff)
    rights = Permission.objects.filter(content_type__app_label="history")
    staff.user_permissions.add(rights.get(codename="view_session"))
    params = {"session": str(session.pk), "format": "jsonl"}
    assert client.post("/history/export/", params).status_code == 403
    staff.user_permissions.add(rights.get(codename="export_session"))
    refused = client.post("/history/export/", params)
    assert refused.status_code == 403
    assert 'name="reason"' in refused.content.decode()
    assert client.post("/history/export/", {**params, "reason": "a court order"}).status_code == 200
    assert AuditEvent.objects.filter(action="export", actor=staff.pk).exists()
