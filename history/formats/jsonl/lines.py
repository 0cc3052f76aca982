"""Lines of JSONL files: sessions, entries, tool calls and exchanges as canonical JSON, and back."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.db import models

from history.db.bulk import fit_values
from history.db.packing import dump
from history.entries import JsonDict, JsonObject
from history.formats.base import FormatError
from history.formats.sources import check_values
from history.models import Exchange, Message, Session, ToolCall
from history.text.lazy import gettext_noop as _

FORMAT, VERSION = "parley", 1

HEADER = {"type": "header", "format": FORMAT, "version": VERSION}

_FIRST, _LAST = 1970, 2200

_BODY = b'{"body":'
_AFTER_BODY = b',"created_at":'


def line_of(value: JsonObject) -> bytes:
    return dump(value, sort_keys=True).encode() + b"\n"


def entry_line(body: str, rest: JsonObject) -> bytes:
    """A line with a body, byte for byte as it was sealed. `body` is its first name."""
    return _BODY + body.encode() + b"," + line_of(rest)[1:]


def read_line(line: bytes) -> JsonDict:
    """The object of a line. In lines of this writer `body` is the sealed text, not its parsed value."""
    check_values(line)
    if line.startswith(_BODY):
        end = line.rfind(_AFTER_BODY)  # no user content follows the body
        if end > 0:
            return {**_object(b"{" + line[end + 1 :]), "body": line[len(_BODY) : end].decode()}
    return _object(line)


def _object(text: bytes) -> JsonDict:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(_("this line is not valid JSON")) from error
    if not isinstance(value, dict):
        raise FormatError(_("this line is not a JSON object"))
    return value


def is_header(line: bytes) -> bool:
    """Whether a file that begins with this line is an export of Parley, of any version."""
    try:
        value = _object(line)
    except FormatError:
        return False
    return value.get("type") == "header" and value.get("format") == FORMAT


def check_header(value: JsonObject) -> None:
    if value.get("type") != "header" or value.get("format") != FORMAT:
        raise FormatError(_("this is not an export of Parley: the header is missing"))
    if value.get("version") != VERSION:
        words = _("this export has version %(version)s; this server reads version %(ours)s")
        raise FormatError(words, version=str(value.get("version")), ours=VERSION)


def time_text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


def time_of(text: object) -> datetime:
    try:
        moment = datetime.fromisoformat(text)  # type: ignore[arg-type]
        return check_year((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC))
    except (TypeError, ValueError, OverflowError):
        raise FormatError(_("%(value)s is not a valid time"), value=repr(str(text)[:40])) from None


def check_year(moment: datetime) -> datetime:
    """Raise ValueError for years that cannot be right. Dates at the ends of the calendar overflow in other time
    zones and in sums, and then lists and purges fail for all users.
    """
    if not _FIRST <= moment.year <= _LAST:
        raise ValueError(f"the year {moment.year} is out of range")
    return moment


@dataclass(frozen=True, slots=True)
class ExtraSection:
    """`name` is the `type` of its lines. `take` restores one and returns the reason if it did not."""

    name: str
    give: Callable[[], Iterable[JsonObject]]
    take: Callable[[JsonObject], str]


_sections: dict[str, ExtraSection] = {}


def register_section(section: ExtraSection) -> None:
    _sections[section.name] = section


def sections() -> Mapping[str, ExtraSection]:
    return dict(sorted(_sections.items()))


SESSION_TEXTS = ("source", "client", "recognised_by", "agent", "workspace", "title", "model", "parent_call")
SESSION_VALUES = ("forked_at", "hold", "trimmed_through", "version", "metadata")
SESSION_TIMES = ("created_at", "last_activity_at", "pinned_at", "archived_at", "marked_at", "hidden_at")
# Facts of an entry whose texts were dropped: only its row has them.
ROW_FACTS = (
    "kind", "role", "is_state", "is_internal", "content_chars", "agent", "provider", "model", "status", "end_reason",
    "input_tokens", "output_tokens", "usage_source", "latency", "duration", "request_id", "metadata",
)  # fmt: skip
CALL_FACTS = ("index", "call_id", "name", "status", "duration", "answered_by", "answer_index")
CALL_TIMES = ("created_at", "started_at")
EXCHANGE_FACTS = (
    "agent", "provider", "model", "dialect", "after", "history_version", "renderer_version", "request_hash", "inputs",
    "end_reason", "attempts", "status_code", "error", "estimated_tokens", "usage", "metadata",
)  # fmt: skip
EXCHANGE_TIMES = ("started_at", "ended_at", "stop_requested_at")


def serialize_session(session: Session) -> JsonDict:
    """`owner` and `api_key` must be loaded."""
    return {
        "type": "session",
        "id": str(session.pk),
        "owner": session.owner.get_username(),
        "key": session.api_key.prefix if session.api_key else None,
        **row_facts(session, (*SESSION_TEXTS, *SESSION_VALUES), SESSION_TIMES),
        "parent": str(session.parent_id) if session.parent_id else None,
        "forked_from": str(session.forked_from_id) if session.forked_from_id else None,
        "cost": f"{session.cost:.6f}",
        "anchor_seal": session.anchor_seal.hex(),
    }


def parse_session(facts: JsonObject) -> JsonDict:
    """Columns of a session, without its owner, its key and the sessions that it names. Raises FormatError."""
    source = _text(facts, "source")
    if source not in Session.Source.values:
        raise FormatError(_("%(value)s is not a session source"), value=repr(source))
    times = {name: time_of(facts[name]) for name in SESSION_TIMES if facts.get(name) is not None}
    texts = {name: _text(facts, name) for name in SESSION_TEXTS}
    others = {
        "forked_at": whole(facts, "forked_at"),
        "trimmed_through": whole(facts, "trimmed_through"),
        "anchor_seal": hash_of(facts, "anchor_seal"),
        "hold": facts.get("hold") is True,
        "cost": cost_of(facts.get("cost", "0")),
        "metadata": mapping(facts, "metadata"),
    }
    return fit_values(Session, {**times, **texts, **others})


def parse_dropped(facts: JsonObject) -> JsonDict:
    if not isinstance(facts.get("kind"), str) or facts.get("role") not in Message.Role.values:
        raise FormatError(_("an entry without texts must state its kind and role"))
    return {**_checked(Message, facts, ROW_FACTS), "dropped_at": time_of(facts.get("at"))}


def parse_call(facts: JsonObject) -> JsonDict:
    return _checked(ToolCall, facts, CALL_FACTS, CALL_TIMES)


def serialize_exchange(exchange: Exchange, session: Session | None) -> JsonDict:
    """`message` is the number of its answer. Owner and key are written if they are not those of the session."""
    facts: JsonDict = {"type": "exchange", "id": str(exchange.pk), "cost": f"{exchange.cost:.6f}"}
    facts |= row_facts(exchange, EXCHANGE_FACTS, EXCHANGE_TIMES)
    if session is None:
        facts["session"] = None
    else:
        facts["message"] = exchange.message.seq if exchange.message else None
    if session is None or exchange.owner_id != session.owner_id:
        facts["owner"] = exchange.owner.get_username()
    if session is None or exchange.api_key_id != session.api_key_id:
        facts["key"] = exchange.api_key.prefix if exchange.api_key else None
    return facts


def parse_exchange(facts: JsonObject) -> JsonDict:
    known = _checked(Exchange, facts, EXCHANGE_FACTS, EXCHANGE_TIMES)
    if "ended_at" not in known or not known.get("end_reason"):
        raise FormatError(_("a model call must state when and why it ended"))
    return {"id": id_of(facts, "id"), "cost": cost_of(facts.get("cost", "0")), **known}


def row_facts(row: models.Model, names: Iterable[str], times: Iterable[str] = ()) -> JsonDict:
    return {name: getattr(row, name) for name in names} | {name: time_text(getattr(row, name)) for name in times}


def _checked(model: type[models.Model], facts: JsonObject, names: Iterable[str], times: Iterable[str] = ()) -> JsonDict:
    """The facts that are present, each checked against its column."""
    values = {name: facts[name] for name in names if name in facts}
    for name, value in values.items():
        column = model._meta.get_field(name)
        if value is None and getattr(column, "null", False):
            continue
        wanted = next((kinds for kind, kinds in _TYPES.items() if isinstance(column, kind)), (str,))
        if type(value) not in wanted or (type(value) is int and not 0 <= value < 2**53):
            raise FormatError(_("%(name)s cannot be %(value)s"), name=name, value=repr(str(value)[:40]))
    moments = {name: time_of(facts[name]) for name in times if facts.get(name) is not None}
    return {**fit_values(model, values), **moments}


_TYPES: dict[type[models.Field[Any, Any]], tuple[type, ...]] = {
    models.BooleanField: (bool,),
    models.IntegerField: (int,),
    models.FloatField: (float, int),
    models.JSONField: (dict,),
}


def id_of(facts: JsonObject, name: str) -> UUID:
    try:
        return UUID(facts[name])
    except (KeyError, TypeError, ValueError, AttributeError):
        given = repr(facts.get(name))
        raise FormatError(_("%(name)s is not an id: %(value)s"), name=name, value=given) from None


def whole(facts: JsonObject, name: str) -> int:
    value = facts.get(name, 0)
    if type(value) is not int or not 0 <= value < 2**53:
        raise FormatError(_("%(name)s is not a whole number: %(value)s"), name=name, value=repr(value))
    return value


def hash_of(facts: JsonObject, name: str, *, size: int = 32) -> bytes:
    """The hash in a hexadecimal text; empty if there is none."""
    try:
        values = bytes.fromhex(facts.get(name) or "")
    except (TypeError, ValueError):
        values = b"?"
    if len(values) not in (0, size):
        given = repr(str(facts.get(name))[:80])
        raise FormatError(_("%(name)s is not a hash: %(value)s"), name=name, value=given)
    return values


def mapping(facts: JsonObject, name: str) -> JsonDict:
    value = facts.get(name, {})
    if not isinstance(value, dict):
        raise FormatError(_("%(name)s is not an object"), name=name)
    return value


def cost_of(value: object) -> Decimal:
    with suppress(InvalidOperation):
        cost = Decimal(str(value))
        if cost.is_finite() and 0 <= cost < 10**8:
            return cost
    raise FormatError(_("%(value)s is not a valid cost"), value=repr(value))


def _text(facts: JsonObject, name: str) -> str:
    value = facts.get(name, "")
    if not isinstance(value, str):
        raise FormatError(_("%(name)s is not a string: %(value)s"), name=name, value=repr(value))
    return value
