"""Removal of upstream addresses from error texts that callers of the relay read.

Where a provider is reached is the operator's business: base URLs name internal hosts, and some servers repeat them in
their errors. A caller reads the provider's name instead. Public addresses of others (documentation) stay.
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from relay.providers.endpoints import Endpoint, host_of

HIDDEN = "•••"
_URL = re.compile(r"\b(?:https?|wss?|unix)://(?:\[[^\s\]]*\])?[^\s\"'<>)\]}]*", re.IGNORECASE)
# Possessive, because an error may repeat a very long text.
_NAME = r"[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)*+(?=:\d{2,5}\b)"
_IP = r"\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]{2,45}\]"
_HOST_AND_PORT = re.compile(rf"(?<![\w.-])(?:{_IP}|localhost|{_NAME})(?::\d{{1,5}})?(?![\w-])")
_INTERNAL_ENDINGS = (".local", ".internal", ".lan", ".home", ".corp", ".intranet", ".localdomain", ".svc", ".test")


def hide_addresses(text: str, endpoint: Endpoint) -> str:
    """The text without the address of this endpoint, and without other internal addresses."""
    name = f"the provider {endpoint.name}"
    for own in (endpoint.base_url, host_of(endpoint.base_url), urlsplit(endpoint.base_url).hostname or ""):
        if own:
            # With the path behind it, but not as the beginning of a longer host.
            text = re.sub(rf"{re.escape(own)}(?![\w-]|\.\w)(?:[:/][^\s\"'<>)\]}}]*)?", name, text, flags=re.IGNORECASE)
    text = _URL.sub(lambda found: HIDDEN if _is_internal(_host(found[0])) else found[0], text)
    return _HOST_AND_PORT.sub(lambda found: HIDDEN if _is_internal(_host(f"//{found[0]}")) else found[0], text)


def _host(address: str) -> str:
    """Empty for an address that names none, or that cannot be read."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_internal(host: str) -> bool:
    """Private and loopback addresses, names without a dot, names that only an own network knows, and what is none."""
    if not host:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        is_name = any(letter.isalpha() for letter in host)
        return is_name and ("." not in host or host.lower().endswith(_INTERNAL_ENDINGS))
    return not address.is_global
