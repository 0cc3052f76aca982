"""Subscription logins of callers, forwarded to providers with `credentials = "caller"` and masked everywhere else.

A login is the caller's own `Authorization` beside a key of Parley in `X-Parley-Key`. It exists in memory while the call
runs. `headers_for` is the only place that writes it into a request, and checks that the request goes to the address of
such a provider. `LoginMask` replaces it in what is recorded: a vendor may repeat it in an error, and a caller may have
written it into a body. The mask is as long as the text, so that sizes and offsets stay.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from history.access.key_cache import bearer_secret
from history.clients.logins import ACCOUNT_HEADER, declares_login
from relay.gateway.call.headers import Pairs
from relay.gateway.journal.records import PARLEY_KEY
from relay.providers.endpoints import Endpoint, is_key

# A shorter text is a placeholder of an SDK that insists on a key. Masking it would damage the record.
SHORTEST_LOGIN, LONGEST_LOGIN, LONGEST_ACCOUNT = 20, 16_000, 200
SHORTEST_MASKED = 8
_OUR_KEY = "parley_"
_OTHER_CREDENTIALS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class Login:
    """`secret` is the credential without its scheme."""

    secret: str = field(repr=False)
    account: str = field(default="", repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """What must not be stored, the longest first."""
        texts = (text for text in (self.secret, self.account) if len(text) >= SHORTEST_MASKED)
        return tuple(sorted(texts, key=len, reverse=True))

    def mask(self, text: str) -> str:
        for secret in self.texts:
            text = text.replace(secret, "*" * len(secret))
        return text

    def mask_bytes(self, content: bytes) -> bytes:
        for secret in self.texts:
            if secret.encode() in content:
                content = content.replace(secret.encode(), b"*" * len(secret))
        return content

    def mask_pairs(self, pairs: Pairs) -> Pairs:
        return [(self.mask(name), self.mask(value)) for name, value in pairs]


def read_login(headers: Mapping[str, str]) -> Login | None:
    """The caller's login, if Parley's key is in its own header."""
    secret = bearer_secret(headers.get("authorization", ""))
    if not headers.get(PARLEY_KEY) or _OUR_KEY in secret or not is_key(secret):
        return None
    if not SHORTEST_LOGIN <= len(secret) <= LONGEST_LOGIN:
        return None
    account = headers.get(ACCOUNT_HEADER, "")
    return Login(secret, account if is_key(account) and len(account) <= LONGEST_ACCOUNT else "")


def has_vendor_credential(headers: Mapping[str, str]) -> bool:
    """Whether a credential for a vendor came along: a 401 of ours would make the client renew that one."""
    beside = headers.get(PARLEY_KEY) is not None and any(
        headers.get(name) and _OUR_KEY not in headers[name] for name in _OTHER_CREDENTIALS
    )
    return beside or (declares_login(headers) and bool(headers.get("authorization")))


def headers_for(login: Login | None, endpoint: Endpoint, url: str) -> dict[str, str]:
    """The login, for a request to exactly this endpoint; nothing for endpoints with a key of the operator."""
    if not endpoint.takes_login:
        return {}
    if login is None or _origin(url) != _origin(endpoint.base_url):
        raise ValueError("a login can only be sent to the provider that takes it")
    headers = {"Authorization": f"Bearer {login.secret}"}
    return headers | ({ACCOUNT_HEADER: login.account} if login.account else {})


def _origin(url: str) -> tuple[str, str]:
    """Scheme, and host with port, as they are connected to."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


class LoginMask:
    """Masks a stream of bytes, also where a login is split between two chunks."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.encode() for text in texts]
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be recorded by now. The beginning of a possible login waits for the next chunk."""
        content = self._masked(self._held + chunk)
        held = max((_overlap(content, text) for text in self._texts), default=0)
        self._held = content[len(content) - held :]
        return content[: len(content) - held]

    def close(self) -> bytes:
        """The rest. A login that breaks off shortly before its end is almost whole, so its beginning is masked too."""
        held, self._held = self._held, b""
        return b"*" * len(held) if len(held) >= SHORTEST_MASKED else held

    def _masked(self, content: bytes) -> bytes:
        for text in self._texts:
            if text in content:
                content = content.replace(text, b"*" * len(text))
        return content


def _overlap(content: bytes, text: bytes) -> int:
    """How many bytes at the end of the content are the beginning of the text."""
    start = max(0, len(content) - len(text) + 1)
    place = content.find(text[:1], start)
    while place >= 0:
        if text.startswith(content[place:]):
            return len(content) - place
        place = content.find(text[:1], place + 1)
    return 0
