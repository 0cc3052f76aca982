"""The rules of OpenAI Responses."""

from __future__ import annotations

from history.linting.rules.words import ODD, OF_TOOLS, REJECTED, Written
from history.text.lazy import gettext_noop as _

RULES: Written = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Invalid type"),
    "no-model": (REJECTED, _("A request names a model."), "Missing required parameter: 'model'."),
    "no-messages": (
        REJECTED,
        _("A request has input, or goes on from a response or a conversation."),
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided.",
    ),
    "two-chains": (
        REJECTED,
        _("A request goes on from previous_response_id or from a conversation, not from both."),
        "Mutually exclusive parameters",
    ),
    "role": (REJECTED, _("A role is system, developer, user or assistant, not %(role)s."), "Invalid value"),
    "content": (REJECTED, _("A message has content."), "Invalid type for 'input[].content'"),
    "empty-text": (ODD, _("A text is not empty. OpenAI takes it, other servers do not."), ""),
    "part-type": (REJECTED, _("A message of %(role)s takes no part of type %(type)s."), "Invalid value"),
    "item-type": (ODD, _("Items of type %(type)s are taken only by servers that know them."), ""),
    "no-answer": (
        REJECTED,
        _("Each call has its output; %(name)s (%(id)s) has none."),
        "No tool output found for function call",
    ),
    "late-answer": (
        ODD,
        _(
            "Outputs stand directly after the calls, all calls first; the one for %(name)s (%(id)s) does not. "
            "OpenAI takes it, DeepSeek refuses it."
        ),
        "",
    ),
    "calls-last": (ODD, _("What is said comes before the calls. OpenAI does not insist; DeepSeek does."), ""),
    "orphan": (
        REJECTED,
        _("An output belongs to a call; there is none with the id %(id)s."),
        "No tool call found for function call output",
    ),
    "answered-twice": (REJECTED, _("A call has one output; %(id)s had one before."), "No tool call found"),
    "no-id": (REJECTED, _("A call and its output have a call_id."), "Missing required parameter"),
    "same-id": (ODD, _("Each call has an id of its own; %(id)s was used before."), ""),
    "long-id": (
        REJECTED,
        _("A call_id has at most 64 characters; %(id)s has more."),
        "string too long",
    ),
    "arguments": (
        REJECTED,
        _("The arguments of a call are JSON written as a text; those of %(name)s are not a text."),
        "Invalid type for 'input[].arguments': expected a string.",
    ),
    "arguments-json": (ODD, _("The arguments of %(name)s are not a JSON object: cut off, or never one."), ""),
    "reasoning-alone": (
        REJECTED,
        _("Reasoning is followed by the message or the call that it led to."),
        "of type 'reasoning' was provided without its required following item.",
    ),
    "reasoning-kept": (
        REJECTED,
        _("Reasoning goes back with its encrypted_content where nothing is stored (store: false)."),
        "Items are not persisted when `store` is set to false.",
    ),
    "reasoning-by-id": (
        ODD,
        _("Reasoning without encrypted_content is taken only as long as OpenAI itself has kept it."),
        "",
    ),
    **OF_TOOLS,
}
