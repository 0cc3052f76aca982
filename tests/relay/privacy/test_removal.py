"""What the relay has hung on a session does not keep it from being removed."""

from __future__ import annotations

from typing import Any

import pytest

from history import retention
from history.access import keys
from history.models import Session
from relay.models import NamedReply
from tests.factories import create_chat


@pytest.mark.django_db(transaction=True)
def test_a_session_whose_answers_have_names_at_a_vendor_is_removed_with_the_names(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    going, staying = (create_chat(ada, "Hello", "Hi", api_key=key) for _ in range(2))
    for session in (going, staying):
        NamedReply.objects.create(key=key, name=f"resp_{session.pk}", session=session, seq=2)
    retention.erase(going, actor=None, reason="asked for")
    assert list(Session.objects.values_list("pk", flat=True)) == [staying.pk]
    assert list(NamedReply.objects.values_list("session", flat=True)) == [staying.pk]
