"""Endpoints of providers: base URL, API key, headers, timeouts, switches.

Plain values without I/O. Keys are not in `repr`, so that no traceback and no settings page shows them.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args
from urllib.parse import urlsplit

from history.clients.logins import ACCOUNT_HEADER
from history.dialects import DIALECTS, Switches
from history.dialects.http_api import KeyHeader
from relay.providers.base import Model
from relay.providers.vendors import azure_url

MASK = "•••"
_CREDENTIAL = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
KEY_HEADERS: tuple[KeyHeader, ...] = get_args(KeyHeader)
Credentials = Literal["operator", "caller"]
CREDENTIALS: tuple[Credentials, ...] = get_args(Credentials)
FORWARDED_HEADERS = ("authorization", ACCOUNT_HEADER)  # of a caller, to a provider that takes logins


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    connect: float = 10.0
    idle: float = 300.0
    attempts: int = 3
    # No further attempt begins after this. A longer wait that a vendor asks for is an error.
    retry_within: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One provider as it was configured. `base_url` is what the vendor's own SDK would be given.

    `key_variable` is the environment variable of the key. `azure_api_version` means Azure's older URLs, with the
    deployment in the path. `lists_models`: its own list of models is fetched and offered; then `models_are_guessed`
    says that configured models which are not in it do not exist. `also_speaks` are further dialects of the same
    address; `paths` are further paths that the relay passes on. With `credentials` of the caller there is no key: each
    caller of the relay sends an own login.
    """

    name: str
    dialect: str
    base_url: str
    label: str = ""
    api_key: str = field(default="", repr=False)
    key_variable: str = ""
    needs_key: bool = False
    key_header: KeyHeader = "bearer"
    credentials: Credentials = "operator"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    azure_api_version: str = ""
    models: tuple[Model, ...] = ()
    lists_models: bool = True
    models_are_guessed: bool = False
    switches: Switches = field(default_factory=Switches)
    timeouts: Timeouts = field(default_factory=Timeouts)
    also_speaks: tuple[str, ...] = ()
    # Whether the server is asked which further dialects it takes, because the operator has not said so.
    probes_dialects: bool = False
    paths: tuple[str, ...] = ()

    @property
    def takes_login(self) -> bool:
        """Whether callers pay with their own subscription. Chats have no login, so only the relay calls it."""
        return self.credentials == "caller"

    @property
    def is_configured(self) -> bool:
        return bool(self.api_key) or not self.needs_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys and header values, which must not be shown where a vendor repeats them. The longest come first."""
        # A header that is not named like a credential may hold a short common word, as in `beta: true`.
        named = (text for name, text in self.headers.items() if len(text) >= 8 or _CREDENTIAL.search(name))
        return tuple(sorted({text for text in (self.api_key, *named) if text}, key=len, reverse=True))

    def masked(self, text: str) -> str:
        """A short secret is masked where it stands alone: inside a longer word it is part of that word."""
        for secret in self.secrets:
            if len(secret) >= 8:
                text = text.replace(secret, MASK)
            else:
                text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", MASK, text)
        return text

    def speaks(self, dialect: str) -> bool:
        return dialect == self.dialect or dialect in self.also_speaks

    def passes(self, method: str, path: str) -> bool:
        """Whether the operator lists this path, or a folder that contains it."""
        listed = (text.rpartition(" ") for text in self.paths)
        return any(verb in ("", method) and _covers(wanted, path) for verb, _, wanted in listed)

    def lists(self, path: str) -> bool:
        """Whether the operator lists this path or one below it, for any method."""
        listed = [text.rpartition(" ")[2] for text in self.paths]
        return any(_covers(one, path) or f"{one.removesuffix('/*')}/".startswith(f"{path}/") for one in listed)

    def url(self, path: str, *, model: str = "") -> str:
        if not self.azure_api_version:
            return self.base_url + path
        return azure_url(self.base_url, path, deployment=model, version=self.azure_api_version)

    def request_headers(self, switches: Switches) -> dict[str, str]:
        headers = {**DIALECTS[self.dialect].HTTP_API.request_headers(switches), **self.headers}
        if self.api_key and self.key_header == "bearer":
            headers["Authorization"] = f"Bearer {self.api_key}"
        elif self.api_key:
            headers[self.key_header] = self.api_key
        return headers


def _covers(listed: str, path: str) -> bool:
    return path == listed or (listed.endswith("/*") and path.startswith(listed[:-1]))


def is_address(text: str) -> bool:
    """Whether this is a base URL: with a host, without credentials, query or fragment."""
    try:
        parts = urlsplit(text)
        port_is_right = parts.port is None or parts.port > 0
    except ValueError:
        return False
    has_extras = "@" in parts.netloc or "?" in text or "#" in text or any(mark.isspace() for mark in text)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port_is_right and not has_extras


def is_safe_for_logins(address: str) -> bool:
    """Whether others on the network cannot read what is sent there: by TLS, or on this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """By the address as it is written: a name other than localhost may lead anywhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_of(address: str) -> str:
    """Host and port, the part of a URL that is not secret."""
    return urlsplit(address).netloc.rpartition("@")[2]


def is_key(text: str) -> bool:
    return text.isascii() and all("!" <= mark <= "~" for mark in text)
