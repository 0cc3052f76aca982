"""Side calls known by their conversation: a request is compared with the session that it names or continues.

Only names that a client derives itself count: a name that the caller chose is obeyed.
"""

from history.entries import ModelInput
from history.models import Exchange
from relay.digest.calls import SessionMatch
from relay.digest.recognisers.session_lookup import current_session, has_other_instruction, offers_tools
from relay.digest.requests import RelayedRequest
from relay.digest.side_calls import is_answerless, kind_by_schema, wants_title
from relay.gateway.call.session_ids import CLIENT_ID, HEADER

# Claude Code and opencode send the first question 0.05 to 0.15 s after the title call. But Claude Code runs its hooks
# in between, and opencode 1.18.33 took 10 s on a busy machine. A conversation of people rarely begins with a request
# for JSON or for a title, so those wait longer.
HOLD_SECONDS, HOLD_TITLE_SECONDS = 2.0, 30.0


def named_side_call_kind(request: RelayedRequest) -> str:
    """The kind of a side call under its conversation's name (Claude Code, opencode); '' for one of its turns."""
    if not _may_be_side_call(request) or request.decoded is None or request.session is None:
        return ""
    session = current_session(request.session, key=request.record.key)[1]
    if session is None or not session.version or not has_other_instruction(request, session):
        return ""
    is_side_call = request.decoded.options.form is not None or offers_tools(session)
    return kind_by_schema(request.decoded) if is_side_call else ""


def is_question_about_session(request: RelayedRequest, match: SessionMatch) -> bool:
    """Gemini CLI's `/compress` sends the conversation with another instruction, without tools and not streamed."""
    session, decoded = match.session, request.decoded
    if decoded is None or session is None or request.record.recognised_by == HEADER or request.sends_only_new:
        return False
    if decoded.tools or request.record.stream or not decoded.system or not isinstance(request.entries[-1], ModelInput):
        return False
    first, is_new = request.first_answer, match.known < len(request.entries)
    if first is None or match.known <= first or not is_new:
        return False
    is_other = offers_tools(session) and has_other_instruction(request, session)
    return is_other and Exchange.objects.filter(session=session).filter(metadata__streamed=True).exists()


def hold_seconds(request: RelayedRequest) -> float:
    """How long a first request of its name waits for another one, because titles often come before the question."""
    if not _may_be_side_call(request) or request.decoded is None:
        return 0.0
    if request.decoded.options.form is not None or wants_title(request.decoded):
        return HOLD_TITLE_SECONDS
    return HOLD_SECONDS if request.decoded.system else 0.0


def _may_be_side_call(request: RelayedRequest) -> bool:
    if request.record.recognised_by != CLIENT_ID or request.decoded is None or request.sends_only_new:
        return False
    return is_answerless(request.decoded)
