"""The vendors that everybody knows: their addresses, the variables their own SDKs read, and models to begin with.

The lists of models are of November 2026 and only what is offered until the vendor's own list has been fetched; a file
of PARLEY_PROVIDERS replaces them. Windows are what is safe to assume; the vendor's list corrects them.

OpenAI is called in the language of Responses where it lives at its own address, because only that carries signed
reasoning from one step of a task to the next (`docs/decisions`); whoever sets another OPENAI_BASE_URL has a server that
speaks *like* OpenAI, and what such servers share is Chat Completions.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

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


VENDORS: tuple[Vendor, ...] = (
    Vendor(
        name="openai",
        label="OpenAI",
        dialect="openai-responses",
        base_url="https://api.openai.com/v1",
        key_variable="OPENAI_API_KEY",
        url_variable="OPENAI_BASE_URL",
        models=tuple(Model(name=name, window=272_000) for name in ("gpt-6.1-sol", "gpt-6.1-terra", "gpt-6-luna")),
    ),
    Vendor(
        name="anthropic",
        label="Anthropic",
        dialect="anthropic-messages",
        base_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        url_variable="ANTHROPIC_BASE_URL",
        models=tuple(
            Model(name=name, window=200_000) for name in ("claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5")
        ),
    ),
    Vendor(
        name="gemini",
        label="Google Gemini",
        dialect="gemini-generate",
        base_url="https://generativelanguage.googleapis.com",
        key_variable="GEMINI_API_KEY",
        url_variable="GOOGLE_GEMINI_BASE_URL",
        models=tuple(
            Model(name=name, window=1_048_576)
            for name in ("gemini-flash-latest", "gemini-pro-latest", "gemini-flash-lite-latest")
        ),
    ),
)
# The provider of the embedded demo model.
DEMO_NAME = "local"
VENDOR_OF_NAME = {vendor.name: vendor for vendor in VENDORS}
# Whose a model is that nobody lists, by how its name begins.
FAMILIES = {
    "claude": "anthropic",
    "gpt-": "openai",
    "chatgpt-": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}
FAMILIES["gemini"] = "gemini"


def is_openai(base_url: str) -> bool:
    """OpenAI itself, or Azure, which is OpenAI in another house; anybody else only speaks like it."""
    host = urlsplit(base_url).hostname or ""
    return host.endswith((".openai.com", ".openai.azure.com", ".cognitiveservices.azure.com"))


def default_dialect(vendor: Vendor, base_url: str) -> str:
    return "openai-chat" if vendor.name == "openai" and not is_openai(base_url) else vendor.dialect


def other_dialects(dialect: str, base_url: str) -> tuple[str, ...]:
    """OpenAI takes both of its languages at one address."""
    both = ("openai-chat", "openai-responses")
    return tuple(name for name in both if name != dialect) if dialect in both and is_openai(base_url) else ()


def default_switches(dialect: str, base_url: str) -> Switches:
    """Servers that only speak like OpenAI are behind its newest fields."""
    return Switches(legacy_max_tokens=dialect == "openai-chat" and not is_openai(base_url))
