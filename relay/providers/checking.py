"""Connection test of a provider: one tiny real call."""

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass

from history.answers.assembly import Assembler
from history.context.values import Context, ContextEntry, Role
from history.dialects import CallOptions
from history.entries import Text, text_of
from relay.errors import ProviderError, VendorFault
from relay.providers import sessions
from relay.providers.http import Route

QUESTION = "Reply with the single word OK."
MAX_TOKENS = 200  # enough for a model that thinks before it speaks; some refuse less
SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How it went: `seconds` until the first piece of an answer, what was said, or the error."""

    model: str
    seconds: float = 0.0
    said: str = ""
    error: ProviderError | None = None


def check(route: Route) -> Checked:
    """In a loop of its own, so it may be called from any thread that has none."""
    return asyncio.run(_check(route))


async def _check(route: Route) -> Checked:
    said = ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=QUESTION),))
    options = CallOptions(model=route.model.name, max_tokens=MAX_TOKENS)
    began, first = time.monotonic(), 0.0
    assembler = Assembler()
    try:
        call = route.provider.call(Context(entries=(said,)), options)
        async with asyncio.timeout(SECONDS), aclosing(call) as events:
            async for event in events:
                first = first or time.monotonic() - began
                assembler.feed(event)
    except ProviderError as failure:
        return Checked(model=route.model.name, error=failure)
    except TimeoutError:
        slow = VendorFault(
            f"no complete answer within {SECONDS:g} seconds", provider=route.provider.name, kind="timeout"
        )
        return Checked(model=route.model.name, error=slow)
    finally:
        await sessions.close()
    return Checked(model=route.model.name, seconds=first, said=text_of(assembler.output().parts))
