"""The rules of Anthropic Messages."""

from __future__ import annotations

from history.linting.rules.words import ODD, OF_TOOLS, REJECTED, Written
from history.text.lazy import gettext_noop as _

NO_RESULT = "`tool_use` ids were found without `tool_result` blocks immediately after"

RULES: Written = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Input should be valid"),
    "no-model": (REJECTED, _("A request names a model."), "model: Field required"),
    "no-limit": (REJECTED, _("A request says max_tokens."), "max_tokens: Field required"),
    "no-messages": (
        REJECTED,
        _("A request holds at least one message."),
        "messages: at least one message is required",
    ),
    "role": (REJECTED, _("A role is user or assistant, not %(role)s."), "Input should be 'user' or 'assistant'"),
    "system": (
        ODD,
        _(
            "The instruction is a field of its own; as a role among the messages it is taken by newer models only, "
            "under the beta mid-conversation-system."
        ),
        "Input should be 'user' or 'assistant'",
    ),
    "content": (
        REJECTED,
        _("A message has content."),
        "all messages must have non-empty content",
    ),
    "empty-text": (
        REJECTED,
        _("A text has something to see in it."),
        "messages: text content blocks must be non-empty",
    ),
    "trailing-space": (
        REJECTED,
        _("An answer that is to be continued does not end in white space."),
        "messages: final assistant content cannot end with trailing whitespace",
    ),
    "part-type": (REJECTED, _("A message of %(role)s takes no block of type %(type)s."), "Input tag does not match"),
    "media-type": (
        REJECTED,
        _("An image is a JPEG, PNG, GIF or WebP, not %(type)s."),
        "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'",
    ),
    "no-answer": (REJECTED, _("Each tool_use has its tool_result; %(name)s (%(id)s) has none."), NO_RESULT),
    "late-answer": (
        REJECTED,
        _("The results of an answer stand in the very next message; the one of %(name)s (%(id)s) does not."),
        NO_RESULT,
    ),
    "split": (
        REJECTED,
        _("The results of one answer stand together in one message; the one of %(name)s (%(id)s) does not."),
        NO_RESULT,
    ),
    "results-first": (REJECTED, _("In a message results stand before everything else."), NO_RESULT),
    "calls-last": (
        REJECTED,
        _("In an answer nothing stands behind a tool_use but another one."),
        NO_RESULT,
    ),
    "orphan": (
        REJECTED,
        _("A tool_result answers a tool_use of the message before it; nothing there asked for %(id)s."),
        "unexpected `tool_use_id` found in `tool_result` blocks",
    ),
    "answered-twice": (
        REJECTED,
        _("A tool_use has one result; %(id)s had one before."),
        "each tool_use must have a single result",
    ),
    "no-id": (REJECTED, _("A tool_use and its tool_result have an id."), "Field required"),
    "same-id": (
        REJECTED,
        _("Each tool_use has an id of its own; %(id)s was used before."),
        "`tool_use` ids must be unique",
    ),
    "id-alphabet": (
        REJECTED,
        _("An id has letters, digits, _ and - only; %(id)s has others."),
        "String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    "arguments": (
        REJECTED,
        _("The input of a tool_use is an object; that of %(name)s is not."),
        "tool_use.input: Input should be a valid dictionary",
    ),
    "unsigned": (
        REJECTED,
        _("Thinking comes back with its signature."),
        "thinking.signature: Field required",
    ),
    "thinking-first": (
        REJECTED,
        _("While thinking is on, an answer that waits for its results begins with thinking."),
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    ),
    "thinking-budget": (
        REJECTED,
        _("max_tokens is greater than the budget for thinking."),
        "`max_tokens` must be greater than `thinking.budget_tokens`.",
    ),
    "thinking-temperature": (
        REJECTED,
        _("With thinking the temperature is 1."),
        "`temperature` may only be set to 1 when thinking is enabled.",
    ),
    "turns": (ODD, _("Roles alternate. Anthropic merges; Bedrock and gateways refuse."), ""),
    "opening": (ODD, _("A user begins. Anthropic does not insist; Bedrock and gateways do."), ""),
    **OF_TOOLS,
}
