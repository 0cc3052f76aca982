"""The rules of OpenAI Chat Completions."""

from __future__ import annotations

from history.linting.rules.words import ODD, OF_TOOLS, REJECTED, Written
from history.text.lazy import gettext_noop as _

UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
)

RULES: Written = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Invalid type"),
    "no-model": (REJECTED, _("A request names a model."), "you must provide a model parameter"),
    "no-messages": (REJECTED, _("A request holds at least one message."), "Invalid 'messages': empty array."),
    "role": (REJECTED, _("A role is system, developer, user, assistant or tool, not %(role)s."), "Invalid value"),
    "content": (
        REJECTED,
        _("A message has content; it may be null only beside tool calls."),
        "Invalid value for 'content': expected a string, got null.",
    ),
    "empty-text": (ODD, _("A text is not empty. OpenAI takes it, other servers do not."), ""),
    "part-type": (REJECTED, _("A message of %(role)s takes no part of type %(type)s."), "Invalid value"),
    "media-in-result": (
        REJECTED,
        _("A tool message holds text only; media go into a user message behind it."),
        "Invalid value: 'image_url'. Supported values are: 'text'.",
    ),
    "no-answer": (REJECTED, _("Each call is answered by a tool message; %(name)s (%(id)s) is not."), UNANSWERED),
    "late-answer": (
        REJECTED,
        _("Tool messages stand directly after the message that calls; the one for %(name)s (%(id)s) does not."),
        UNANSWERED,
    ),
    "orphan": (
        REJECTED,
        _("A tool message answers a call of the message before it; nothing there asked for %(id)s."),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    "answered-twice": (
        REJECTED,
        _("A call is answered once; %(id)s was answered before."),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
    ),
    "no-id": (REJECTED, _("A call and its tool message have an id."), "Missing required parameter"),
    "same-id": (ODD, _("Each call has an id of its own; %(id)s was used before."), ""),
    "long-id": (
        REJECTED,
        _("The id of a call has at most 40 characters; %(id)s has more."),
        "string too long. Expected a string with maximum length 40",
    ),
    "arguments": (
        REJECTED,
        _("The arguments of a call are JSON written as a text; those of %(name)s are not a text."),
        "Invalid type for 'messages[].tool_calls[].function.arguments': expected a string.",
    ),
    "arguments-json": (ODD, _("The arguments of %(name)s are not a JSON object: cut off, or never one."), ""),
    "calls-of-others": (REJECTED, _("Only the assistant calls tools."), "Unrecognized request argument"),
    "reasoning": (ODD, _("OpenAI Chat takes no reasoning back; servers like DeepSeek take their own."), ""),
    "turns": (ODD, _("Roles alternate. OpenAI does not insist; some servers of its language do."), ""),
    "late-system": (ODD, _("The instruction comes first. OpenAI does not insist; some models do."), ""),
    "stream-options": (
        REJECTED,
        _("stream_options are for streams only."),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
    ),
    **OF_TOOLS,
}
