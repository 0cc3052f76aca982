"""Side calls known by their conversation: a request is compared with the session that it names or continues.

Programs send titles, checks and summaries under the name of their conversation (Claude Code, opencode). Such a request
holds no answer and no tools, has another instruction than the conversation, and either the conversation offers tools
or the request asks for JSON. Only names that a client derives itself count: a name that the caller chose is obeyed.

A program that names nothing sends the conversation itself with a question of its own behind it (Gemini CLI's
`/compress`). Such a request has another instruction and no tools although the conversation offers tools, and it is not
streamed although the conversation is: no person waits for it.

Titles often come before the first question. So a first request of that shape waits for another request of the same
name. If none comes in time, it opens the conversation after all: nothing is lost.
"""

from __future__ import annotations

from history.entries import ModelInput
from history.models import Exchange
from relay.digest.calls import Spot
from relay.digest.recognisers.session_lookup import current_session, has_other_instruction, offers_tools
from relay.digest.requests import RelayedRequest
from relay.digest.side_calls import asks_for_title, is_answerless, kind_by_form
from relay.gateway.call.session_ids import CLIENT_ID, HEADER

# Claude Code and opencode send the first question 0.05 to 0.15 s after the title call. But Claude Code runs its hooks
# in between, and opencode 1.18.33 took 10 s on a busy machine. A conversation of people rarely begins with a request
# for JSON or for a title, so those wait longer.
HOLD_SECONDS, HOLD_TITLE_SECONDS = 2.0, 30.0


def side_call_kind(asked: RelayedRequest) -> str:
    """The kind of side call that a request is beside the session that it names; '' if it is part of it."""
    if not _may_be_side_call(asked) or asked.request is None or asked.session is None:
        return ""
    session = current_session(asked.session, key=asked.record.key)[1]
    if session is None or not session.version or not has_other_instruction(asked, session):
        return ""
    is_side_call = asked.request.options.form is not None or offers_tools(session)
    return kind_by_form(asked.request) if is_side_call else ""


def is_beside(asked: RelayedRequest, spot: Spot) -> bool:
    """Whether a request that continues a session is a question of the program's own about it."""
    if asked.request is None or spot.session is None or asked.record.recognised_by == HEADER or asked.sends_new_alone:
        return False
    if asked.request.tools or asked.record.stream or not asked.request.system:
        return False
    if not isinstance(asked.entries[-1], ModelInput):
        return False
    first, is_new = asked.first_answer, spot.known < len(asked.entries)
    if first is None or spot.known <= first or not is_new:
        return False
    session = spot.session
    is_other = offers_tools(session) and has_other_instruction(asked, session)
    return is_other and Exchange.objects.of(session).filter(metadata__streamed=True).exists()


def hold_seconds(asked: RelayedRequest) -> float:
    """How long a first request of its name waits for the conversation that it may belong to."""
    if not _may_be_side_call(asked) or asked.request is None:
        return 0.0
    if asked.request.options.form is not None or asks_for_title(asked.request):
        return HOLD_TITLE_SECONDS
    return HOLD_SECONDS if asked.request.system else 0.0


def _may_be_side_call(asked: RelayedRequest) -> bool:
    if asked.record.recognised_by != CLIENT_ID or asked.request is None or asked.sends_new_alone:
        return False
    return is_answerless(asked.request)
