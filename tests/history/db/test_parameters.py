"""Rows among many keys, and among none."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from history.db.parameters import among
from history.models import Session
from project.accounts.models import User
from tests.factories import create_chat

pytestmark = pytest.mark.django_db


def test_rows_are_found_by_keys_of_every_kind(ada: Any) -> None:
    session = create_chat(ada, "one", agent="weaver")
    assert Session.objects.filter(pk__in=among([session.pk, uuid4()])).get() == session
    assert User.objects.filter(pk__in=among([ada.pk, 0], kind=int)).get() == ada
    assert Session.objects.filter(agent__in=among(["weaver", "x"], kind=str)).get() == session


def test_among_none_there_is_nothing_and_without_none_everything(ada: Any) -> None:
    session = create_chat(ada, "one", agent="weaver")
    assert not Session.objects.filter(pk__in=among([])).exists()
    assert Session.objects.exclude(pk__in=among([])).get() == session
    assert not User.objects.filter(pk__in=among([], kind=int)).exists()
    assert not Session.objects.filter(agent__in=among([], kind=str)).exists()
