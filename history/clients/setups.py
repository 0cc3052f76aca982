"""Settings that point a client at this server, with an API key of this server or with the user's own subscription."""

from typing import NamedTuple


class ClientSetup(NamedTuple):
    """`plan` is the dialect of the subscription that pays; '' if this server's provider pays.

    `text` is shell commands, or with `file` the beginning of that settings file. It may name `{url}` and `{key}`.
    """

    client: str
    text: str
    file: str = ""
    plan: str = ""

    def settings(self, *, url: str, key: str) -> str:
        return self.text.replace("{url}", url).replace("{key}", key)


# Without CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC Claude Code 2.1.326 sends custom headers to another host too.
_CLAUDE_CODE = """\
export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_AUTH_TOKEN={key}
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"""
_CLAUDE_CODE_PLAN = """\
unset ANTHROPIC_AUTH_TOKEN ANTHROPIC_API_KEY
export ANTHROPIC_BASE_URL={url}
export ANTHROPIC_CUSTOM_HEADERS='X-Parley-Key: {key}'
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"""
# Without headers of tables: lines of the user's own file that follow must not become part of a table.
_CODEX = """\
model_provider = "parley"
model_providers.parley.name = "Parley"
model_providers.parley.base_url = "{url}/v1"
model_providers.parley.wire_api = "responses"
model_providers.parley.http_headers = { "X-Parley-Key" = "{key}" }"""
_CODEX_PLAN = """\
model_provider = "parley"
model_providers.parley.name = "Parley"
model_providers.parley.base_url = "{url}/v1"
model_providers.parley.wire_api = "responses"
model_providers.parley.requires_openai_auth = true
model_providers.parley.http_headers = { "X-Parley-Key" = "{key}" }
check_for_update_on_startup = false
analytics.enabled = false
features.plugins = false
features.apps = false"""
_CODEX_FILE = "~/.codex/config.toml"

SETUPS = (
    ClientSetup("Claude Code", _CLAUDE_CODE),
    ClientSetup("Claude Code", _CLAUDE_CODE_PLAN, plan="anthropic-messages"),
    ClientSetup("Codex", _CODEX, file=_CODEX_FILE),
    ClientSetup("Codex", _CODEX_PLAN, file=_CODEX_FILE, plan="openai-responses"),
    ClientSetup("Gemini CLI, Google GenAI SDK", "export GOOGLE_GEMINI_BASE_URL={url}\nexport GEMINI_API_KEY={key}"),
    ClientSetup("aider", "export OPENAI_API_BASE={url}/v1\nexport OPENAI_API_KEY={key}"),
    ClientSetup("OpenAI SDK", "export OPENAI_BASE_URL={url}/v1\nexport OPENAI_API_KEY={key}"),
    ClientSetup("Anthropic SDK", "export ANTHROPIC_BASE_URL={url}\nexport ANTHROPIC_API_KEY={key}"),
)
