"""A running call ends when its key is revoked or expires, or its owner is locked out."""

import json
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from history.access import keys
from history.models import ApiKey
from project.accounts.models import User
from project.background.jobs import JOBS
from relay.gateway.call import revocations
from relay.providers import registry
from tests.relay.gateway.test_endings import STREAMS
from tests.relay_client import HI, Asked, Relay, asking
from tests.vendors.raw_upstream import Bare, speaking, stream, whole

BODY = json.dumps({**HI, "stream": True}).encode()
BEGUN, FINAL = STREAMS["anthropic-messages"]


@pytest.fixture
def providers(bare: Bare) -> registry.Router:
    return speaking(bare, "anthropic-messages")


def end_key(how: str, owner: User) -> None:
    if how == "revoked":
        keys.revoke(ApiKey.objects.get(), actor=owner)
    elif how == "expired":
        ApiKey.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif how == "locked out":
        User.objects.update(is_active=False)
    else:
        ApiKey.objects.all().delete()


@pytest.mark.parametrize("how", ["revoked", "expired", "locked out", "deleted"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_stream_ends_with_its_key(relay: Relay, key: str, ada: User, bare: Bare, how: str, path: str) -> None:
    bare.says.append(stream(BEGUN, 20.0, FINAL))
    with asking(relay, path, BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(20)
        revocations.end_revoked()  # the key holds
        assert not bare.heard[0].left.is_set()
        end_key(how, ada)
        revocations.end_revoked()
        assert bare.heard[0].left.wait(5)
        answered.read()
    assert answered.is_cut
    (ended,) = relay.ended()
    assert (ended.reason, ended.error) == ("stopped", revocations.WHY)


def test_call_without_a_reply_yet_is_refused(relay: Relay, key: str, ada: User, bare: Bare) -> None:
    bare.says.append(whole(b"{}"))
    bare.says[0].pieces = (20.0, *bare.says[0].pieces)
    got: list[Any] = []

    def call() -> None:
        with asking(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
            got.append(Asked(answered))

    caller = threading.Thread(target=call)
    caller.start()
    bare.wait_for(1)
    end_key("revoked", ada)
    revocations.end_revoked()
    caller.join(10)
    assert (got[0].status, got[0].json["error"]["message"]) == (401, revocations.WHY)
    assert relay.ended()[0].reason == "stopped"


def test_reply_that_was_complete_stays_complete(relay: Relay, key: str, ada: User, bare: Bare) -> None:
    bare.says.append(stream(BEGUN, FINAL, 20.0))
    with asking(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(len(BEGUN + FINAL))
        end_key("revoked", ada)
        revocations.end_revoked()
    assert relay.ended()[0].reason == "done"


def test_nothing_is_asked_of_the_database_while_no_call_runs(django_assert_num_queries: Any, db: None) -> None:
    with django_assert_num_queries(0):
        revocations.end_revoked()
    (job,) = [job for job in JOBS if job.run == "relay.gateway.call.revocations.end_revoked"]
    assert (job.every <= 0.5, job.once_per) == (True, "process")
