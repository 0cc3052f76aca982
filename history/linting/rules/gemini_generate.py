"""The rules of Gemini generateContent."""

from __future__ import annotations

from history.linting.rules.words import ODD, OF_TOOLS, REJECTED, Written
from history.text.lazy import gettext_noop as _

COUNTS = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)

RULES: Written = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Invalid JSON payload received."),
    "no-messages": (REJECTED, _("A request holds at least one content."), "contents is not specified"),
    "role": (
        REJECTED,
        _("Role must be user or model, but got %(role)s."),
        "Please use a valid role: user, model.",
    ),
    "content": (REJECTED, _("A content has parts."), "contents.parts must not be empty."),
    "empty-text": (REJECTED, _("A part is not empty."), "contents.parts must not be empty."),
    "opening": (
        REJECTED,
        _("A user begins."),
        "Please ensure that multiturn requests begin with a user role.",
    ),
    "ending": (ODD, _("The last word is the user's, or results. Some models refuse the model's own."), ""),
    "no-answer": (REJECTED, _("Each functionCall has its response; %(name)s has none."), COUNTS),
    "late-answer": (
        REJECTED,
        _("The responses stand in the very next content; the one of %(name)s does not."),
        COUNTS,
    ),
    "split": (
        REJECTED,
        _("The responses to one turn stand together; the one of %(name)s does not."),
        COUNTS,
    ),
    "results-first": (ODD, _("Responses stand before what else the user says."), ""),
    "orphan": (
        REJECTED,
        _("A response belongs to a call of the content before it; nothing there called %(name)s."),
        COUNTS,
    ),
    "answered-twice": (REJECTED, _("A call has one response; %(name)s has another."), COUNTS),
    "result-name": (
        REJECTED,
        _("A response has the name of its call; this one is named %(given)s, not %(name)s."),
        COUNTS,
    ),
    "result-id": (ODD, _("A response has the id of its call; this one has another."), ""),
    "same-id": (ODD, _("Each call has an id of its own; %(id)s was used before."), ""),
    "call-turn": (
        REJECTED,
        _("A content that calls comes after one of the user or after responses."),
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
    ),
    "calls-of-others": (REJECTED, _("Only the model calls functions."), "Please ensure that function call turn"),
    "arguments": (
        REJECTED,
        _("The arguments of a call are an object; those of %(name)s are not."),
        "Invalid value at 'args'",
    ),
    "response": (REJECTED, _("A response is an object."), "Invalid value at 'response'"),
    "unsigned": (
        REJECTED,
        _("The first call of each step has its thoughtSignature (Gemini 3); %(name)s has none."),
        "is missing a thought_signature",
    ),
    "thought": (ODD, _("Thoughts are not sent back."), ""),
    **OF_TOOLS,
}
