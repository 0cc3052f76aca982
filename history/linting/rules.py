"""Rules of the linter for each vendor, and the types of its reports.

The rules come from the vendors' documents and from the answers of their endpoints to recorded requests. Vendors enforce
that each call is answered beside it and completely, and that signed reasoning comes back unchanged.
"""

from dataclasses import dataclass
from enum import StrEnum

from history.entries import JsonDict
from history.text.lazy import LazyText, gettext_noop as _


class LintSeverity(StrEnum):
    """Severities: refused; taken with losses; taken by some vendors only, or carried in another form."""

    REJECTED = "rejected"
    UNPORTABLE = "unportable"
    ODD = "odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of one vendor. `answer` is the error that the vendor returns, if known."""

    id: str
    severity: LintSeverity
    words: str
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """A broken rule. `place` is a path into the given JSON, or an entry of a session."""

    rule: Rule
    text: LazyText
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    code: str
    text: LazyText
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one vendor makes of the conversation. `repaired` is a request that it takes; None: nothing is left."""

    dialect: str
    is_native: bool
    findings: tuple[LintFinding, ...]
    repaired: JsonDict | None
    repairs: tuple[Repair, ...]

    @property
    def is_rejected(self) -> bool:
        return any(finding.rule.severity is LintSeverity.REJECTED for finding in self.findings)

    @property
    def outcome(self) -> str:
        """The worst severity of the findings, or "taken"."""
        severities = {finding.rule.severity for finding in self.findings}
        return next((severity.value for severity in LintSeverity if severity in severities), "taken")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """`language` is the dialect in which the conversation was given; empty: the record's own."""

    language: str
    verdicts: tuple[Verdict, ...]


RuleTable = dict[str, tuple[LintSeverity, str, str]]

REJECTED, ODD = LintSeverity.REJECTED, LintSeverity.ODD

# Errors that several rules of a vendor lead to.
UNANSWERED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
)
NO_RESULT = "`tool_use` ids were found without `tool_result` blocks immediately after"
COUNTS = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)

# Of both dialects.
OPENAI: RuleTable = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Invalid type"),
    "empty-text": (ODD, _("A text should not be empty. OpenAI accepts it, other servers do not."), ""),
    "part-type": (REJECTED, _("Messages of %(role)s cannot contain parts of type %(type)s."), "Invalid value"),
    "same-id": (ODD, _("Each call must have a unique id; %(id)s was used before."), ""),
    "arguments-json": (ODD, _("The arguments of %(name)s are not a JSON object. They may be cut off."), ""),
}

OPENAI_CHAT: RuleTable = OPENAI | {
    "no-model": (REJECTED, _("A request must name a model."), "you must provide a model parameter"),
    "no-messages": (REJECTED, _("A request must have at least one message."), "Invalid 'messages': empty array."),
    "role": (REJECTED, _("The role must be system, developer, user, assistant or tool, not %(role)s."),
        "Invalid value"),
    "content": (REJECTED, _("A message must have content; it can be null only with tool calls."),
        "Invalid value for 'content': expected a string, got null."),
    "media-in-result": (REJECTED, _("A tool message must contain only text. Move media into a user message after it."),
        "Invalid value: 'image_url'. Supported values are: 'text'."),
    "no-answer": (REJECTED, _("Each call must have a tool message; %(name)s (%(id)s) has none."), UNANSWERED),
    "late-answer": (REJECTED,
        _("Tool messages must directly follow the message with the calls; that of %(name)s (%(id)s) does not."),
        UNANSWERED),
    "orphan": (REJECTED, _("A tool message must belong to a call of the previous message; %(id)s does not."),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."),
    "answered-twice": (REJECTED, _("A call can have only one tool message; %(id)s already had one."),
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."),
    "no-id": (REJECTED, _("A call and its tool message must have an id."), "Missing required parameter"),
    "long-id": (REJECTED, _("The id of a call can have up to 40 characters; %(id)s has more."),
        "string too long. Expected a string with maximum length 40"),
    "arguments": (REJECTED, _("The arguments of a call must be a JSON string; those of %(name)s are not."),
        "Invalid type for 'messages[].tool_calls[].function.arguments': expected a string."),
    "calls-of-others": (REJECTED, _("Only the assistant can call tools."), "Unrecognized request argument"),
    "reasoning": (ODD, _("OpenAI Chat does not accept reasoning. Servers like DeepSeek accept their own."), ""),
    "turns": (ODD, _("Roles should alternate. OpenAI does not require this; some compatible servers do."), ""),
    "late-system": (ODD,
        _("The system instruction should come first. OpenAI does not require this; some models do."), ""),
    "stream-options": (REJECTED, _("stream_options are allowed only in streams."),
        "The 'stream_options' parameter is only allowed when 'stream' is enabled."),
}  # fmt: skip

OPENAI_RESPONSES: RuleTable = OPENAI | {
    "no-model": (REJECTED, _("A request must name a model."), "Missing required parameter: 'model'."),
    "no-messages": (REJECTED, _("A request must have input, or continue a response or a conversation."),
        "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation_id' must be provided."),
    "two-chains": (REJECTED, _("A request can continue previous_response_id or a conversation, not both."),
        "Mutually exclusive parameters"),
    "role": (REJECTED, _("The role must be system, developer, user or assistant, not %(role)s."), "Invalid value"),
    "content": (REJECTED, _("A message must have content."), "Invalid type for 'input[].content'"),
    "item-type": (ODD, _("Only some servers accept items of type %(type)s."), ""),
    "no-answer": (REJECTED, _("Each call must have an output; %(name)s (%(id)s) has none."),
        "No tool output found for function call"),
    "late-answer": (ODD,
        _("Outputs should directly follow the calls, all calls first; that of %(name)s (%(id)s) does not. OpenAI "
        "accepts it, DeepSeek does not."), ""),
    "calls-last": (ODD, _("Text should come before calls. OpenAI does not require this; DeepSeek does."), ""),
    "orphan": (REJECTED, _("An output must belong to a call; there is no call with the id %(id)s."),
        "No tool call found for function call output"),
    "answered-twice": (REJECTED, _("A call can have only one output; %(id)s already had one."), "No tool call found"),
    "no-id": (REJECTED, _("A call and its output must have a call_id."), "Missing required parameter"),
    "long-id": (REJECTED, _("A call_id can have up to 64 characters; %(id)s has more."), "string too long"),
    "arguments": (REJECTED, _("The arguments of a call must be a JSON string; those of %(name)s are not."),
        "Invalid type for 'input[].arguments': expected a string."),
    "reasoning-alone": (REJECTED, _("Reasoning must be followed by its message or call."),
        "of type 'reasoning' was provided without its required following item."),
    "reasoning-kept": (REJECTED, _("Reasoning must have encrypted_content if nothing is stored (store: false)."),
        "Items are not persisted when `store` is set to false."),
    "reasoning-by-id": (ODD, _("Reasoning without encrypted_content is accepted only while OpenAI stores it."), ""),
}  # fmt: skip

ANTHROPIC: RuleTable = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Input should be valid"),
    "no-model": (REJECTED, _("A request must name a model."), "model: Field required"),
    "no-limit": (REJECTED, _("A request must set max_tokens."), "max_tokens: Field required"),
    "no-messages": (REJECTED, _("A request must have at least one message."),
        "messages: at least one message is required"),
    "role": (REJECTED, _("The role must be user or assistant, not %(role)s."), "Input should be 'user' or 'assistant'"),
    "system": (ODD,
        _("The system instruction belongs in its own field. Only newer models accept it as a role, with the beta "
        "mid-conversation-system."), "Input should be 'user' or 'assistant'"),
    "content": (REJECTED, _("A message must have content."), "all messages must have non-empty content"),
    "empty-text": (REJECTED, _("A text must not be blank."), "messages: text content blocks must be non-empty"),
    "trailing-space": (REJECTED, _("An answer to be continued must not end in white space."),
        "messages: final assistant content cannot end with trailing whitespace"),
    "part-type": (REJECTED, _("Messages of %(role)s cannot contain blocks of type %(type)s."),
        "Input tag does not match"),
    "media-type": (REJECTED, _("An image must be a JPEG, PNG, GIF or WebP, not %(type)s."),
        "Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"),
    "no-answer": (REJECTED, _("Each tool_use must have a tool_result; %(name)s (%(id)s) has none."), NO_RESULT),
    "late-answer": (REJECTED,
        _("The results of an answer must be in the next message; that of %(name)s (%(id)s) is not."), NO_RESULT),
    "split": (REJECTED,
        _("The results of one answer must be in one message; that of %(name)s (%(id)s) is not."), NO_RESULT),
    "results-first": (REJECTED, _("Results must come first in a message."), NO_RESULT),
    "calls-last": (REJECTED, _("Only another tool_use may follow a tool_use in an answer."), NO_RESULT),
    "orphan": (REJECTED, _("A tool_result must belong to a tool_use of the previous message; %(id)s does not."),
        "unexpected `tool_use_id` found in `tool_result` blocks"),
    "answered-twice": (REJECTED, _("A tool_use can have only one result; %(id)s already had one."),
        "each tool_use must have a single result"),
    "no-id": (REJECTED, _("A tool_use and its tool_result must have an id."), "Field required"),
    "same-id": (REJECTED, _("Each tool_use must have a unique id; %(id)s was used before."),
        "`tool_use` ids must be unique"),
    "id-alphabet": (REJECTED, _("An id can have only letters, digits, _ and -; %(id)s has others."),
        "String should match pattern '^[a-zA-Z0-9_-]+$'"),
    "arguments": (REJECTED, _("The input of a tool_use must be an object; that of %(name)s is not."),
        "tool_use.input: Input should be a valid dictionary"),
    "unsigned": (REJECTED, _("Thinking must be sent back with its signature."), "thinking.signature: Field required"),
    "thinking-first": (REJECTED, _("With thinking, an answer that waits for results must begin with thinking."),
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`"),
    "thinking-budget": (REJECTED, _("max_tokens must be greater than the budget for thinking."),
        "`max_tokens` must be greater than `thinking.budget_tokens`."),
    "thinking-temperature": (REJECTED, _("With thinking, the temperature must be 1."),
        "`temperature` may only be set to 1 when thinking is enabled."),
    "turns": (ODD, _("Roles should alternate. Anthropic merges messages; Bedrock and gateways refuse them."), ""),
    "opening": (ODD,
        _("The first message should be the user’s. Anthropic accepts others; Bedrock and gateways do not."), ""),
}  # fmt: skip

GEMINI: RuleTable = {
    "malformed": (REJECTED, _("%(what)s must be %(wanted)s."), "Invalid JSON payload received."),
    "no-messages": (REJECTED, _("A request must have at least one content."), "contents is not specified"),
    "role": (REJECTED, _("Role must be user or model, but got %(role)s."), "Please use a valid role: user, model."),
    "content": (REJECTED, _("A content must have parts."), "contents.parts must not be empty."),
    "empty-text": (REJECTED, _("A part must not be empty."), "contents.parts must not be empty."),
    "opening": (REJECTED, _("The first content must be the user’s."),
        "Please ensure that multiturn requests begin with a user role."),
    "ending": (ODD,
        _("The last content should be the user’s or a response. Some models refuse to continue their own."), ""),
    "no-answer": (REJECTED, _("Each functionCall must have a response; %(name)s has none."), COUNTS),
    "late-answer": (REJECTED, _("The responses must be in the next content; that of %(name)s is not."), COUNTS),
    "split": (REJECTED, _("The responses of one turn must be in one content; that of %(name)s is not."), COUNTS),
    "results-first": (ODD, _("Responses should come before other parts of the user."), ""),
    "orphan": (REJECTED, _("A response must belong to a call of the previous content; %(name)s was not called there."),
        COUNTS),
    "answered-twice": (REJECTED, _("A call can have only one response; %(name)s has several."), COUNTS),
    "result-name": (REJECTED,
        _("A response must have the name of its call; this one is named %(given)s, not %(name)s."),
        COUNTS),
    "result-id": (ODD, _("A response should have the id of its call; this one has another."), ""),
    "same-id": (ODD, _("Each call must have a unique id; %(id)s was used before."), ""),
    "call-turn": (REJECTED, _("A content with calls must follow a content of the user or responses."),
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn."),
    "calls-of-others": (REJECTED, _("Only the model can call functions."), "Please ensure that function call turn"),
    "arguments": (REJECTED, _("The arguments of a call must be an object; those of %(name)s are not."),
        "Invalid value at 'args'"),
    "response": (REJECTED, _("A response must be an object."), "Invalid value at 'response'"),
    "unsigned": (REJECTED, _("The first call of each step must have a thoughtSignature (Gemini 3); %(name)s has none."),
        "is missing a thought_signature"),
    "thought": (ODD, _("Thoughts should not be sent back."), ""),
}  # fmt: skip

TOOLS: RuleTable = {
    "tool-name": (REJECTED, _("A tool's name must be 1 to 64 letters, digits, _ or -; %(name)s is not."),
        "does not match '^[a-zA-Z0-9_-]{1,64}$'"),
    "same-tool": (REJECTED, _("Each tool can be offered only once; %(name)s is repeated."),
        "Tool names must be unique"),
}  # fmt: skip

RULES: dict[str, Rule] = {
    f"{dialect}/{name}": Rule(id=f"{dialect}/{name}", severity=severity, words=words, answer=answer)
    for dialect, table in (
        ("openai-chat", OPENAI_CHAT),
        ("openai-responses", OPENAI_RESPONSES),
        ("anthropic-messages", ANTHROPIC),
        ("gemini-generate", GEMINI),
    )
    for name, (severity, words, answer) in (table | TOOLS).items()
}


def finding_of(dialect: str, name: str, place: str, /, **about: object) -> LintFinding:
    rule = RULES[f"{dialect}/{name}"]
    return LintFinding(rule=rule, text=LazyText(rule.words, **about), place=place)
