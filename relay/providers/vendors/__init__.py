"""Known vendors: addresses, environment variables of their SDKs, first models.

The models are those of November 2026, offered until the vendor's own list has been fetched; a file of PARLEY_PROVIDERS
replaces them. Context windows are what is safe to assume; the vendor's list corrects them.
"""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from history.dialects import Switches
from relay.providers.base import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    name: str
    label: str
    dialect: str
    base_url: str
    key_variable: str
    url_variable: str
    models: tuple[Model, ...]


def _models(window: int, *names: str) -> tuple[Model, ...]:
    return tuple(Model(name=name, window=window) for name in names)


VENDORS: tuple[Vendor, ...] = (
    Vendor(
        name="openai",
        label="OpenAI",
        dialect="openai-responses",
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
        models=_models(272_000, "gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna"),
    ),
    Vendor(
        name="anthropic",
        label="Anthropic",
        dialect="anthropic-messages",
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        models=_models(200_000, "claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5"),
    ),
    Vendor(
        name="gemini",
        label="Google Gemini",
        dialect="gemini-generate",
        base_url="https://generativelanguage.googleapis.com",
        key_variable="GEMINI_API_KEY",
        url_variable="GOOGLE_GEMINI_BASE_URL",
        models=_models(1_048_576, "gemini-flash-latest", "gemini-pro-latest", "gemini-flash-lite-latest"),
    ),
)
DEMO_NAME = "local"  # the provider of the embedded demo model
VENDOR_OF_NAME = {vendor.name: vendor for vendor in VENDORS}
# The vendor of a model that no provider lists, by the beginning of its name.
FAMILIES = dict.fromkeys(("gpt-", "chatgpt-", "o1", "o3", "o4"), "openai")
FAMILIES |= {"claude": "anthropic", "gemini": "gemini"}
EXAMPLE_PATTERN = "claude-*"  # for help texts
HOW_TO_ADD_MODELS = (
    "ask the operator of this server to set a key of OpenAI, Anthropic or Gemini, or to run Ollama (docs/providers.md)"
)
# Azure's older addresses, with the deployment in the path, exist for one dialect.
AZURE_DIALECT = "openai-chat"
AZURE_ADVICE = 'dialect = "openai-chat", or a base_url that ends in /openai/v1 with key_header = "api-key"'
_OPENAI_CHAT_MODEL = re.compile(r"gpt-|o\d|chatgpt-|codex-|ft:")


def is_openai(base_url: str) -> bool:
    """OpenAI itself, or Azure, which hosts it; other servers are only compatible with it."""
    host = urlsplit(base_url).hostname or ""
    return host.endswith((".openai.com", ".openai.azure.com", ".cognitiveservices.azure.com"))


def is_offered_for_chat(name: str, base_url: str) -> bool:
    """OpenAI's own list has many models of other kinds, whose names do not show it."""
    return not is_openai(base_url) or _OPENAI_CHAT_MODEL.match(name) is not None


def azure_url(base_url: str, path: str, *, deployment: str, version: str) -> str:
    within = f"/deployments/{quote(deployment, safe='', errors='replace')}" if deployment else ""
    return f"{base_url}/openai{within}{path}?{urlencode({'api-version': version})}"


def default_dialect(vendor: Vendor, base_url: str) -> str:
    """OpenAI's own is Responses, because only that carries signed reasoning from one step of a task to the next.

    With another OPENAI_BASE_URL the server is only compatible with OpenAI, and such servers share Chat Completions.
    """
    return "openai-chat" if vendor.name == "openai" and not is_openai(base_url) else vendor.dialect


def other_dialects(dialect: str, base_url: str) -> tuple[str, ...]:
    """OpenAI takes both of its languages at one address."""
    both = ("openai-chat", "openai-responses")
    return tuple(name for name in both if name != dialect) if dialect in both and is_openai(base_url) else ()


def default_switches(dialect: str, base_url: str) -> Switches:
    """Servers that only speak like OpenAI are behind its newest fields."""
    return Switches(legacy_max_tokens=dialect == "openai-chat" and not is_openai(base_url))
