"""Errors of the gateway in the dialect of the caller, without the addresses of upstreams.

Base URLs name internal hosts, and some servers repeat them in their errors. A caller reads the provider's name instead.
Public addresses of others (documentation) stay.
"""

import ipaddress
import re
from urllib.parse import urlsplit

from history.access.key_cache import ApiKeyError
from history.answers.events import AnswerFailed, ErrorKind
from history.dialects import DIALECTS
from history.dialects.json_access import as_bytes
from relay.gateway.journal.records import PARLEY_KEY
from relay.providers.endpoints import Endpoint, host_of

LONGEST_NAME = 200  # names that callers invent are repeated up to this length
# The end of a call whose upstream sent no answer: a web page, or bytes that cannot be read.
UNREADABLE = "upstream_unreadable"
KIND_OF_KEY_ERROR: dict[int, ErrorKind] = {401: "authentication", 403: "permission", 503: "overloaded"}

HIDDEN = "•••"
_URL = re.compile(r"\b(?:https?|wss?|unix)://(?:\[[^\s\]]*\])?[^\s\"'<>)\]}]*", re.IGNORECASE)
# Possessive, because an error may repeat a very long text.
_NAME = r"[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)*+(?=:\d{2,5}\b)"
_IP = r"\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:.]{2,45}\]"
_HOST_AND_PORT = re.compile(rf"(?<![\w.-])(?:{_IP}|localhost|{_NAME})(?::\d{{1,5}})?(?![\w-])")
_INTERNAL_ENDINGS = (".local", ".internal", ".lan", ".home", ".corp", ".intranet", ".localdomain", ".svc", ".test")


class Refusal(Exception):
    """Raised before the first byte of a reply. A `status` of 0 means the usual one of the kind."""

    def __init__(
        self,
        message: str,
        kind: ErrorKind = "invalid_request",
        *,
        status: int = 0,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message, self.kind, self.status, self.headers = message, kind, status, headers

    def encode(self, dialect: str) -> tuple[int, bytes]:
        status, body = DIALECTS[dialect].encode_error(AnswerFailed(message=self.message, kind=self.kind))
        return self.status or status, as_bytes(body)


def key_refusal(error: ApiKeyError, *, is_beside_login: bool = False) -> Refusal:
    """Beside a vendor's login a 403: clients answer a 401 with a renewal of the login, which is not at fault."""
    headers = (("retry-after", "2"),) if error.retry_helps else ()
    kind = KIND_OF_KEY_ERROR.get(error.status, "authentication")
    if is_beside_login and kind == "authentication":
        text = f"{error} Parley's key belongs into {PARLEY_KEY.title()}; the login of your client was not checked."
        return Refusal(text, "permission", status=403, headers=headers)
    return Refusal(str(error), kind, headers=headers)


def model_not_found(name: str) -> Refusal:
    text = f"The model '{name[:LONGEST_NAME]}' is not available. GET /v1/models lists the available models."
    return Refusal(text, "not_found")


def not_found(text: str, dialect: str) -> Refusal:
    """A 404 that is not about a model: for some vendors' clients that is another error."""
    return Refusal(text, DIALECTS[dialect].HTTP_API.not_found_kind, status=404)


def unreadable_reply(message: str) -> Refusal:
    """The reply has a good status and is no answer: the code is in a header, which every dialect can have."""
    return Refusal(message, "server", status=502, headers=(("x-parley-error", UNREADABLE),))


def hide_addresses(text: str, endpoint: Endpoint) -> str:
    """The text without the address of this endpoint, and without other internal addresses."""
    name = f"the provider {endpoint.name}"
    for own in (endpoint.base_url, host_of(endpoint.base_url), urlsplit(endpoint.base_url).hostname or ""):
        if own:
            # With the path behind it, but not as the beginning of a longer host.
            text = re.sub(rf"{re.escape(own)}(?![\w-]|\.\w)(?:[:/][^\s\"'<>)\]}}]*)?", name, text, flags=re.IGNORECASE)
    text = _URL.sub(lambda found: HIDDEN if _is_internal(found[0]) else found[0], text)
    return _HOST_AND_PORT.sub(lambda found: HIDDEN if _is_internal(f"//{found[0]}") else found[0], text)


def _is_internal(url: str) -> bool:
    """Private and loopback addresses, names without a dot, names of private networks, and invalid addresses."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        host = ""
    if not host:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        is_name = any(letter.isalpha() for letter in host)
        return is_name and ("." not in host or host.lower().endswith(_INTERNAL_ENDINGS))
    return not address.is_global
