"""A running call ends when its key is revoked or expires, or its owner is locked out."""

import asyncio
import json
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from history.access import keys
from history.models import ApiKey
from project.accounts.models import User
from project.background.jobs import JOBS
from relay.gateway.call import cancellation
from relay.providers import registry
from tests.clients import HI_BODY, Reply, RunningRelay, open_reply
from tests.relay.gateway.test_endings import STREAMS
from tests.vendors.raw_upstream import RawUpstream, complete_reply, streamed_reply, use_raw_provider

BODY = json.dumps({**HI_BODY, "stream": True}).encode()
BEGUN, FINAL = STREAMS["anthropic-messages"]


@pytest.fixture
def providers(bare: RawUpstream) -> registry.Router:
    return use_raw_provider(bare, "anthropic-messages")


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
def test_stream_ends_with_its_key(
    relay: RunningRelay, key: str, ada: User, bare: RawUpstream, how: str, path: str
) -> None:
    bare.says.append(streamed_reply(BEGUN, 20.0, FINAL))
    with open_reply(relay, path, BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(20)
        cancellation.end_revoked()  # the key holds
        assert not bare.heard[0].left.is_set()
        end_key(how, ada)
        cancellation.end_revoked()
        assert bare.heard[0].left.wait(5)
        answered.read()
    assert answered.is_cut
    (ended,) = relay.ended()
    assert (ended.reason, ended.error) == ("stopped", cancellation.REVOKED)


def test_call_without_a_reply_yet_is_refused(relay: RunningRelay, key: str, ada: User, bare: RawUpstream) -> None:
    bare.says.append(complete_reply(b"{}"))
    bare.says[0].pieces = (20.0, *bare.says[0].pieces)
    got: list[Any] = []

    def call() -> None:
        with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
            got.append(Reply(answered))

    caller = threading.Thread(target=call)
    caller.start()
    bare.wait_for(1)
    end_key("revoked", ada)
    cancellation.end_revoked()
    caller.join(10)
    assert (got[0].status, got[0].json["error"]["message"]) == (401, cancellation.REVOKED)
    assert relay.ended()[0].reason == "stopped"


def test_reply_that_was_complete_stays_complete(relay: RunningRelay, key: str, ada: User, bare: RawUpstream) -> None:
    bare.says.append(streamed_reply(BEGUN, FINAL, 20.0))
    with open_reply(relay, "/v1/messages", BODY, headers={"x-api-key": key}) as answered:
        answered.response.read(len(BEGUN + FINAL))
        end_key("revoked", ada)
        cancellation.end_revoked()
    assert relay.ended()[0].reason == "done"


def test_nothing_is_asked_of_the_database_while_no_call_runs(django_assert_num_queries: Any, db: None) -> None:
    with django_assert_num_queries(0):
        cancellation.end_revoked()
    (job,) = [job for job in JOBS if job.run == "relay.gateway.call.cancellation.end_revoked"]
    assert (job.every <= 0.5, job.once_per) == (True, "process")


async def test_a_call_that_is_stopped_is_not_cancelled_again_by_its_revoked_key() -> None:
    """The job looks twice a second: a second cancellation would interrupt what records the end of the call."""

    async def call() -> tuple[int, str]:
        task = asyncio.current_task()
        assert task is not None
        cancelling = cancellation.CallCancellation(asyncio.get_running_loop(), 1)
        for reason in (cancellation.STOPPED, cancellation.REVOKED, cancellation.REVOKED):
            cancelling.end(reason)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        cancelling.close()
        return task.cancelling(), cancelling.reason

    assert await asyncio.create_task(call()) == (1, cancellation.STOPPED)
