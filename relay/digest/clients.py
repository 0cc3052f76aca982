"""Which program calls, and whose child a conversation is, as far as its headers say."""

from __future__ import annotations

import re
from collections.abc import Mapping

CLAUDE_CODE = "Claude Code"
# By how the user agent begins; the first that fits.
_AGENTS = (
    ("claude-cli", CLAUDE_CODE),
    ("codex", "Codex"),
    ("geminicli", "Gemini CLI"),
    ("opencode", "opencode"),
    ("qwencode", "Qwen Code"),
    ("aider", "aider"),
    ("langchain", "LangChain"),
    ("ai-sdk", "Vercel AI SDK"),
    ("ai/", "Vercel AI SDK"),
    ("litellm", "LiteLLM"),
    ("openai/", "OpenAI SDK"),
    ("asyncopenai/", "OpenAI SDK"),
    ("anthropic/", "Anthropic SDK"),
    ("asyncanthropic/", "Anthropic SDK"),
    ("google-genai-sdk", "Google GenAI SDK"),
)
# Headers that only one program sends, for those behind an SDK's user agent.
_MARKS = (
    ("x-claude-code-session-id", CLAUDE_CODE),
    ("x-codex-window-id", "Codex"),
    ("x-session-affinity", "opencode"),
    ("x-qwen-code-session-id", "Qwen Code"),
)
# No program is called by more; a key that somebody put there would be.
LONGEST_NAME = 40
_PRODUCT = re.compile(r"[\w.-]+(?: ?/ ?[\w.-]+)?")


def client_of(headers: Mapping[str, str]) -> str:
    agent = headers.get("user-agent", "")
    lowered = agent.lower()
    found = next((name for start, name in _AGENTS if lowered.startswith(start)), "")
    if found and not found.endswith(" SDK"):
        return found
    mark = next((name for header, name in _MARKS if headers.get(header)), "")
    if mark or found:
        return mark or found
    product = _PRODUCT.match(agent)
    name = product[0].partition("/")[0].strip() if product else ""
    return name if len(name) <= LONGEST_NAME else ""


def parent_of(headers: Mapping[str, str], *, named: str = "") -> str:
    """What the client calls the conversation that this one was begun by; '' for one of its own. Claude Code's session
    may be `named` in the body alone."""
    if session := headers.get("x-claude-code-session-id") or (headers.get("x-claude-code-agent-id") and named):
        if not headers.get("x-claude-code-agent-id"):
            return ""
        above = headers.get("x-claude-code-parent-agent-id", "")
        return f"{session}/{above}" if above else session
    thread = headers.get("thread-id") or headers.get("thread_id") or headers.get("x-session-id", "")
    above = headers.get("x-codex-parent-thread-id") or headers.get("x-parent-session-id") or _root(headers)
    return above if above != thread else ""


def _root(headers: Mapping[str, str]) -> str:
    """Threads of Codex's subagents share the session, whose name is that of its first thread."""
    is_child = headers.get("x-openai-subagent") and (headers.get("thread-id") or headers.get("thread_id"))
    return headers.get("session-id") or headers.get("session_id", "") if is_child else ""
