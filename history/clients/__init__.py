"""Known client programs: user agents, marks, session headers, side calls, settings, instruction files."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

# Claude Code names its session in a header. Its subagents share the session and have an id of their own.
SESSION_HEADER, AGENT_HEADER = "x-claude-code-session-id", "x-claude-code-agent-id"
_PARENT_AGENT_HEADER = "x-claude-code-parent-agent-id"


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """`name` is what `Session.client` holds. `mark` is two letters for lists.

    A program is known by how its user agent begins, or behind an SDK's user agent by a `header` that only it sends.
    `instruction_file` is a file, without its ending, that the program reads by itself and sends as the first message.
    `subagent_tools` are the tools that start a subagent.
    """

    name: str
    mark: str = ""
    user_agents: tuple[str, ...] = ()
    header: str = ""
    instruction_file: str = ""
    subagent_tools: tuple[str, ...] = ()
    is_sdk: bool = False


PROGRAMS = (
    ClientProgram("Claude Code", "CC", ("claude-cli",), SESSION_HEADER, "claude", ("Task", "Agent")),
    ClientProgram("Codex", "CX", ("codex",), "x-codex-window-id", "agents", ("spawn_agent",)),
    ClientProgram("Gemini CLI", "GC", ("geminicli",), instruction_file="gemini"),
    ClientProgram("Cursor", "CU"),
    ClientProgram("opencode", "OC", ("opencode",), "x-session-affinity", subagent_tools=("task",)),
    ClientProgram("aider", "AI", ("aider",)),
    ClientProgram("Cline", "CL"),
    ClientProgram("Qwen Code", "QC", ("qwencode",), "x-qwen-code-session-id"),
    ClientProgram("LangChain", user_agents=("langchain",)),
    ClientProgram("Vercel AI SDK", user_agents=("ai-sdk", "ai/"), is_sdk=True),
    ClientProgram("LiteLLM", user_agents=("litellm",)),
    ClientProgram("OpenAI SDK", user_agents=("openai/", "asyncopenai/"), is_sdk=True),
    ClientProgram("Anthropic SDK", user_agents=("anthropic/", "asyncanthropic/"), is_sdk=True),
    ClientProgram("Google GenAI SDK", user_agents=("google-genai-sdk",), is_sdk=True),
)
MARKS = {program.name.lower(): program.mark for program in PROGRAMS if program.mark}
INSTRUCTION_FILES = tuple(program.instruction_file for program in PROGRAMS if program.instruction_file)
SUBAGENT_TOOLS = tuple(tool for program in PROGRAMS for tool in program.subagent_tools)
# They mark the end of what they will send again for the vendor's prompt cache, and send side calls without such a mark.
CACHE_MARKING_CLIENTS = frozenset({"Claude Code"})
EXAMPLE_CLIENT = PROGRAMS[0].name  # for texts that need an example

_LONGEST_NAME = 40  # no program has a longer name; an API key in its place would be longer
_PRODUCT = re.compile(r"[\w.-]+(?: ?/ ?[\w.-]+)?")

TITLE = "title"
# Codex names the kind of a side call: older builds in a header of its own, newer ones in the metadata of a turn. A
# title has its own thread there, so its thread id leads to no conversation.
_SUBAGENT_HEADER, _TURN_HEADER = "x-openai-subagent", "x-codex-turn-metadata"
_SUBAGENT_SIDE_CALLS = ("compact", "memory_consolidation")
_TURN_SIDE_CALLS = {
    ("request_kind", "compaction"): "compact",
    ("thread_source", "thread_title"): TITLE,
    ("thread_source", "memory_consolidation"): "memory_consolidation",
}

# Recognition by the headers of a request; their names are lower case.


def client_name(headers: Mapping[str, str]) -> str:
    """The program that sends a request, or else the product of its user agent. '' if unknown."""
    agent = headers.get("user-agent", "")
    by_agent = next((one for one in PROGRAMS if one.user_agents and agent.lower().startswith(one.user_agents)), None)
    if by_agent and not by_agent.is_sdk:
        return by_agent.name
    known = next((one for one in PROGRAMS if one.header and headers.get(one.header)), by_agent)
    if known is not None:
        return known.name
    product = _PRODUCT.match(agent)
    name = product[0].partition("/")[0].strip() if product else ""
    return name if len(name) <= _LONGEST_NAME else ""


def parent_session_name(headers: Mapping[str, str], *, body_session: str = "") -> str:
    """The client's name for the session whose subagent this is, or ''. Claude Code may send it in the body alone."""
    if session := headers.get(SESSION_HEADER) or (headers.get(AGENT_HEADER) and body_session):
        if not headers.get(AGENT_HEADER):
            return ""
        parent_agent = headers.get(_PARENT_AGENT_HEADER, "")
        return f"{session}/{parent_agent}" if parent_agent else session
    thread = headers.get("thread-id") or headers.get("thread_id", "")
    parent = headers.get("x-codex-parent-thread-id") or headers.get("x-parent-session-id", "")
    if not parent and headers.get(_SUBAGENT_HEADER) and thread:
        # Threads of Codex's subagents share the session, whose name is that of its first thread.
        parent = headers.get("session-id") or headers.get("session_id", "")
    return parent if parent != (thread or headers.get("x-session-id", "")) else ""


def declared_side_call(headers: Mapping[str, str]) -> str:
    if (kind := headers.get(_SUBAGENT_HEADER, "")) in _SUBAGENT_SIDE_CALLS:
        return kind
    try:
        turn = json.loads(headers.get(_TURN_HEADER) or "{}")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(turn, dict):
        return ""
    return next((kind for (name, value), kind in _TURN_SIDE_CALLS.items() if turn.get(name) == value), "")


# Those of `titles.NOISE_TAGS` that users never type themselves.
FOLDED_TAGS = (
    "system-reminder", "environment_context", "environment_details", "session_context", "hook_context",
    "user_instructions", "user-prompt-submit-hook", "task-notification", "ide_opened_file", "ide_selection",
    "local-command-caveat",
)  # fmt: skip
_OPENING_TAG = re.compile(rf"^[ \t]*<({'|'.join(FOLDED_TAGS)})>", re.MULTILINE)


class TaggedText(NamedTuple):
    """Text of the user, or with `tag` the text within that tag."""

    text: str
    tag: str = ""


def split_client_tags(text: str) -> list[TaggedText]:
    """The text in order; a block without a closing tag counts as text."""
    pieces: list[TaggedText] = []
    unclosed: set[str] = set()
    text_start, search_start = 0, 0
    while opening := _OPENING_TAG.search(text, search_start):
        closing = f"</{opening[1]}>"
        end = -1 if opening[1] in unclosed else text.find(closing, opening.end())
        if end < 0:
            unclosed.add(opening[1])
            search_start = opening.end()
            continue
        inside = text[opening.end() : end].strip("\n")
        pieces += [TaggedText(text[text_start : opening.start()]), TaggedText(inside, tag=opening[1])]
        text_start = search_start = end + len(closing)
    pieces.append(TaggedText(text[text_start:]))
    return [piece for piece in pieces if piece.tag or piece.text.strip()]
