"""Answers under the names by which a client may go on from them: the vendor's own, and what it makes of them itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relay.digest import openai_reply_names
from relay.digest.calls import CallPlan
from relay.digest.recognisers import prefills
from relay.models import NamedReply


def name_replies(plans: Iterable[CallPlan]) -> None:
    named = [
        NamedReply(name=name[:200], key=plan.key, session_id=plan.session_id, seq=plan.message_seq or plan.after)
        for plan in plans
        if plan.session_id
        for name in _names_of(plan)
    ]
    if named:
        NamedReply.objects.bulk_create(named, ignore_conflicts=True)


def _names_of(plan: CallPlan) -> Iterator[str]:
    if (name := _vendors_name(plan)).startswith("resp_"):
        yield name
        if plan.message_seq and plan.answer is not None:
            yield from plan.answer.items
    if plan.message_seq and (ours := _our_name(plan)):
        yield ours
    if plan.answer is not None and plan.message_seq:
        yield from prefills.names_of(plan.asked, plan.answer)
        yield from openai_reply_names.names_of(plan.asked, plan.answer)


def _our_name(plan: CallPlan) -> str:
    """What the relay named a translated answer."""
    ended = plan.under.ended
    return "" if ended is None or plan.asked.side else str(ended.metadata.get("response_id", ""))


def _vendors_name(plan: CallPlan) -> str:
    """Also of one that was not kept, for a key that records no replies: then its question is gone on from."""
    ended = plan.under.ended
    if plan.answer is None or ended is None or plan.asked.side:
        return ""
    return plan.answer.reply_id if plan.message_seq else str(ended.metadata.get("reply_id", ""))
