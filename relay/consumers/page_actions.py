"""What a page can ask for: one function per verb, carried out by `relay.conversation` without waiting for a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from relay import conversation
from relay.consumers.intents import ActionRequest
from relay.consumers.page_events import PageEvents
from relay.conversation import SendResult
from relay.pages.chat import fragments


async def send(page: PageEvents, intent: ActionRequest) -> SendResult:
    """What the page showed is in the form: the last entry, the run, and the version of the session.

    A second message with the same version was sent before the page showed the first: it continues that one.
    """
    after, run = intent.number("after"), intent.optional_id("run")
    shown = (after, intent.optional_number("version"))
    if page.last_sent is not None and page.last_sent[0] == shown:
        before = page.last_sent[1]
        after, run = before.seq or after, before.run or run
    sent = await conversation.send(
        page.view.user,
        page.session,
        draft=intent.draft(),
        after=after,
        run=run,
        on_leaf=intent.optional_number("leaf") is not None,
        client=page.client,
    )
    if sent.seq:
        page.last_sent = (shown, sent)
    return sent


async def stop(page: PageEvents, intent: ActionRequest) -> None:
    await conversation.stop(page.session, run=intent.optional_id("run"))


async def edit(page: PageEvents, intent: ActionRequest) -> SendResult:
    return await conversation.edit(
        page.view.user, page.session, seq=intent.number("seq"), draft=intent.draft(), client=page.client
    )


async def regenerate(page: PageEvents, intent: ActionRequest) -> SendResult:
    model = intent.text("model")
    return await conversation.regenerate(
        page.view.user, page.session, seq=intent.number("seq"), model=model, client=page.client
    )


async def continue_(page: PageEvents, intent: ActionRequest) -> SendResult:
    return await conversation.continue_(
        page.view.user, page.session, leaf=page.view.leaf, model=intent.text("model"), client=page.client
    )


async def answer(page: PageEvents, intent: ActionRequest) -> SendResult:
    return await conversation.answer(
        page.view.user,
        page.session,
        seq=intent.number("seq"),
        call_id=intent.text("call_id"),
        text=intent.text("text"),
        client=page.client,
    )


async def unqueue(page: PageEvents, intent: ActionRequest) -> None:
    """`id`: that message; without it all that wait."""
    await conversation.unqueue(page.session, queued_id=intent.optional_number("id"))


async def send_queued(page: PageEvents, intent: ActionRequest) -> None:
    await conversation.send_queued(page.view.user, page.session, after=page.view.shown)


async def rollback(page: PageEvents, intent: ActionRequest) -> None:
    await conversation.rollback(page.view.user, page.session, to=intent.number("to"))


async def switch(page: PageEvents, intent: ActionRequest) -> None:
    await conversation.switch(page.view.user, page.session, leaf=intent.number("leaf"))
    page.view = replace(page.view, leaf=None)


async def fork(page: PageEvents, intent: ActionRequest) -> SendResult:
    copy = await conversation.fork(page.view.user, page.session, at=intent.optional_number("seq"))
    return SendResult(go_to=copy.pk)


async def compress(page: PageEvents, intent: ActionRequest) -> SendResult:
    """`seq`: a summary that is to be written anew, perhaps by another model."""
    return await conversation.compress(
        page.view.user,
        page.session,
        model=intent.text("model"),
        instead_of=intent.optional_number("seq") or 0,
        client=page.client,
    )


async def undo_summary(page: PageEvents, intent: ActionRequest) -> None:
    await conversation.undo_summary(page.view.user, page.session, seq=intent.number("seq"))


async def ping(page: PageEvents, intent: ActionRequest) -> None:
    await page.show(fragments.pong())


Verb = Callable[[PageEvents, ActionRequest], Awaitable[SendResult | None]]
VERBS: dict[str, Verb] = {
    "send": send,
    "stop": stop,
    "edit": edit,
    "regenerate": regenerate,
    "continue": continue_,
    "answer": answer,
    "unqueue": unqueue,
    "send_queued": send_queued,
    "rollback": rollback,
    "switch": switch,
    "fork": fork,
    "compress": compress,
    "undo_summary": undo_summary,
    "ping": ping,
}
