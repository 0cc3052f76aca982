"""Rules of the linter: id, severity, text and the vendor's error.

They are taken from the vendors' documents and from what their endpoints answered to recorded requests. What is enforced
is that each call of a tool is answered beside it and completely, and that signed reasoning comes back as it was; that
roles alternate is only good manners, and told as such (`odd`).
"""

from __future__ import annotations

from history.linting.rules import anthropic_messages, gemini_generate, openai_chat, openai_responses
from history.linting.values import Rule

RULES: dict[str, Rule] = {
    f"{dialect}/{name}": Rule(id=f"{dialect}/{name}", severity=severity, words=words, answer=answer)
    for dialect, written in (
        ("openai-chat", openai_chat.RULES),
        ("openai-responses", openai_responses.RULES),
        ("anthropic-messages", anthropic_messages.RULES),
        ("gemini-generate", gemini_generate.RULES),
    )
    for name, (severity, words, answer) in written.items()
}


def rule(dialect: str, name: str) -> Rule:
    return RULES[f"{dialect}/{name}"]


def knows(dialect: str, name: str) -> bool:
    return f"{dialect}/{name}" in RULES
