"""How long an upstream may be silent, and that a wait which is given up is an error of ours and no cancelled task."""

import asyncio
from typing import NoReturn

import pytest

from relay.errors import Cut, VendorFault
from relay.gateway.upstream.upstream_calls import idle_timeout
from relay.providers.endpoints import Endpoint, Timeouts

pytestmark = pytest.mark.any_database

IMPATIENT = Endpoint(
    name="mute", dialect="openai-chat", base_url="http://127.0.0.1:1/v1", timeouts=Timeouts(connect=1, idle=0.01)
)


async def wait_in_vain(*, has_begun: bool) -> NoReturn:
    with idle_timeout(IMPATIENT, asyncio.get_running_loop(), has_begun=has_begun):
        await asyncio.Event().wait()
    raise AssertionError("no caller gets here")


@pytest.mark.parametrize(("has_begun", "fault"), [(False, VendorFault), (True, Cut)])
async def test_who_says_nothing_for_too_long_is_given_up(has_begun: bool, fault: type[Exception]) -> None:
    with pytest.raises(fault, match=r"sent nothing for 0\.01 seconds"):
        await wait_in_vain(has_begun=has_begun)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling(), "what comes next is not cancelled with it"


async def test_cancellation_by_another_task_stays_a_cancellation() -> None:
    task = asyncio.create_task(wait_in_vain(has_begun=True))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_upload_does_not_count_as_silence_of_the_upstream() -> None:
    loop = asyncio.get_running_loop()
    short, long = (idle_timeout(IMPATIENT, loop, has_begun=False, sending=size) for size in (100, 64 * 1024 * 1024))
    for wait in (short, long):
        with wait:
            pass
    assert long.seconds - short.seconds > 600
