"""Rows among many keys are the same rows, whichever way they are asked for."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from history.many import among
from history.models import Session
from tests.talk import chat_of

pytestmark = pytest.mark.django_db


def test_sessions_are_found_among_many_ids(ada: Any) -> None:
    wanted, _other = [chat_of(ada, "one").pk, chat_of(ada, "two").pk], chat_of(ada, "three")
    keys = [*wanted, *(uuid4() for _ in range(2_000))]
    assert set(Session.objects.filter(pk__in=among(keys)).values_list("pk", flat=True)) == set(wanted)


def test_what_belongs_to_people_is_found_among_many_numbers(ada: Any, bob: Any) -> None:
    hers, _his = chat_of(ada, "hers"), chat_of(bob, "his")
    assert list(Session.objects.filter(owner__in=among([ada.pk, bob.pk + 1_000]))) == [hers]
