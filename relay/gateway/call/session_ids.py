"""Session ids in headers or bodies of calls, checked without the database.

A client's own name for a session is valid within its key, so the id is made from both. The second half of an id that we
issue is a MAC over the first half and the key. So any process can check that an id belongs to the caller before the
call is digested; only ids of other sessions must be looked up. The digester matches calls without a session id.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings

from history.clients import AGENT_HEADER, SESSION_HEADER
from history.dialects.json_access import obj, parse_json, string
from history.entries import JsonObject

HEADER, CLIENT_ID, NEW = "header", "client id", "new"
EXPLICIT = ("x-parley-session-id", "x-crs-session-id")
FORCED_NEW = ("x-parley-new-session", "x-crs-new-session")
NO = ("", "0", "false", "no", "off")
BODY_FIELD = "sessionId"

# The first that is set counts. Some proxies drop names with underscores, some clients send them.
OF_CLIENTS = (
    *("thread-id", "thread_id", "session-id", "session_id", "conversation_id"),
    *("x-session-id", "x-session-affinity"),
)
OF_BODIES = ("litellm_session_id", "session_id", "conversation_id")  # fields of bodies, which come last
_LIKE_A_SESSION = re.compile(r"x-(?!parent-|parley-|crs-).+-session-id")
LONGEST = 200
LONGEST_USER_ID = 2_000
_HALF = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionName:
    """`to_check`: the session belongs to this key only if the database says so."""

    session: UUID | None = None
    recognised_by: str = ""
    is_new: bool = False
    to_check: bool = False


NOT_NAMED = SessionName()


def read_session(headers: Mapping[str, str], body: JsonObject, *, key: int) -> SessionName:
    ours, crs = EXPLICIT
    explicit = headers.get(ours) or headers.get(crs) or string(body.get(BODY_FIELD))
    if explicit.lower() == "new" or any(headers.get(name, "").lower() not in NO for name in FORCED_NEW):
        return SessionName(session=_issued(secrets.token_bytes(_HALF), key=key), recognised_by=NEW, is_new=True)
    if explicit:
        return _explicit(explicit[:LONGEST], key=key)
    if name := next(client_names(headers, body), ""):
        return SessionName(session=session_id(name[:LONGEST], key=key), recognised_by=CLIENT_ID)
    return NOT_NAMED


def client_names(headers: Mapping[str, str], body: JsonObject) -> Iterator[str]:
    """The most specific first."""
    if session := headers.get(SESSION_HEADER):
        yield _with_agent(session, headers)
    yield from (headers[name] for name in OF_CLIENTS if headers.get(name))
    for name, value in headers.items():
        if name.endswith("-session-id") and value and _LIKE_A_SESSION.fullmatch(name):
            yield value
    if (metadata := body.get("metadata")) and (session := session_in_user_id(string(obj(metadata).get("user_id")))):
        yield _with_agent(session, headers)
    yield from filter(None, (string(body.get(name)) for name in OF_BODIES))


def _with_agent(session: str, headers: Mapping[str, str]) -> str:
    """Subagents share the session of the agent that started them."""
    agent = headers.get(AGENT_HEADER, "")
    return f"{session}/{agent}" if agent else session


def session_in_user_id(user_id: str) -> str:
    """Claude Code writes it into Anthropic's `metadata.user_id`: as JSON, before 2.1.78 at the end of a long name."""
    if len(user_id) > LONGEST_USER_ID:
        return ""
    if user_id.startswith("{"):
        try:
            return string(obj(parse_json(user_id)).get("session_id"))
        except ValueError:
            return ""
    return user_id.rpartition("_session_")[2] if "_session_" in user_id else ""


def session_id(name: str, *, key: int) -> UUID:
    """The id of this key's session with this name, equal in every process."""
    return _issued(_mac(b"name", key, name.encode("utf-8", "surrogatepass")), key=key)


def _explicit(name: str, *, key: int) -> SessionName:
    """An id of ours, or any name."""
    try:
        session = UUID(name)
    except ValueError:
        return SessionName(session=session_id(name, key=key), recognised_by=HEADER)
    is_ours = hmac.compare_digest(_issued(session.bytes[:_HALF], key=key).bytes, session.bytes)
    return SessionName(session=session, recognised_by=HEADER, to_check=not is_ours)


def _issued(first: bytes, *, key: int) -> UUID:
    first = first[:6] + bytes([first[6] & 0x0F | 0x80]) + first[7:_HALF]
    second = _mac(b"issued", key, first)
    return UUID(bytes=first + bytes([second[0] & 0x3F | 0x80]) + second[1:_HALF])


def _mac(purpose: bytes, key: int, value: bytes) -> bytes:
    return hmac.digest(settings.PARLEY_FINGERPRINT_KEY, b"%s:%d:%s" % (purpose, key, value), hashlib.sha256)[:_HALF]
