"""Known client programs: short marks, session headers, settings, instruction files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientProgram:
    """`name` is what `Session.client` holds. `mark` is two letters for lists.

    `instruction_file` is a file, without its ending, that the program reads by itself and sends as the first message.
    """

    name: str
    mark: str
    instruction_file: str = ""


PROGRAMS = (
    ClientProgram(name="Claude Code", mark="CC", instruction_file="claude"),
    ClientProgram(name="Codex", mark="CX", instruction_file="agents"),
    ClientProgram(name="Gemini CLI", mark="GC", instruction_file="gemini"),
    ClientProgram(name="Cursor", mark="CU"),
    ClientProgram(name="opencode", mark="OC"),
    ClientProgram(name="aider", mark="AI"),
    ClientProgram(name="Cline", mark="CL"),
    ClientProgram(name="Qwen Code", mark="QC"),
)
MARKS = {program.name.lower(): program.mark for program in PROGRAMS}
INSTRUCTION_FILES = tuple(program.instruction_file for program in PROGRAMS if program.instruction_file)
# For texts that need an example.
EXAMPLE_CLIENT = PROGRAMS[0].name

# Claude Code names its session in a header. Its subagents share the session and have an id of their own.
SESSION_HEADER, AGENT_HEADER = "x-claude-code-session-id", "x-claude-code-agent-id"

# Environment variables that point a program at this server.
ENVIRONMENTS = {
    "Claude Code": {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_AUTH_TOKEN": "{key}"},
    "Gemini CLI, Google GenAI SDK": {"GOOGLE_GEMINI_BASE_URL": "{url}", "GEMINI_API_KEY": "{key}"},
    "aider": {"OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "{key}"},
    "OpenAI SDK": {"OPENAI_BASE_URL": "{url}/v1", "OPENAI_API_KEY": "{key}"},
    "Anthropic SDK": {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "{key}"},
}


def environment_of(client: str, *, url: str, key: str) -> str:
    """Shell commands that set the variables of one of ENVIRONMENTS."""
    variables = ENVIRONMENTS[client].items()
    return "\n".join(f"export {name}={value.format(url=url, key=key)}" for name, value in variables)
