"""Retention policies: limits of each source from the settings, or of an API key.

`RetentionPolicy.expiry` is the one rule for expiry times, used by writers and by the purge.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Q

from history.models import ApiKey, Session, SessionQuerySet

MOST_DAYS = 36_500  # A century. Longer policies could exceed the calendar, and writes and purges would fail.
LIMITS = ("keep_days", "keep_body_days", "max_messages", "max_sessions")  # that a key may have of its own


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """0 means no limit."""

    keep_days: int = 0
    keep_body_days: int = 0
    max_messages: int = 0
    max_sessions: int = 0
    # Imports are kept from the day of import, because their activity may be years ago.
    counts_from: str = "last_activity_at"

    def expiry(self, column: Callable[[str], Any]) -> Any:
        """When a session expires, or None. `column` returns a column of it: a value, or SQL (`F`)."""
        return column(self.counts_from) + timedelta(days=self.keep_days) if self.keep_days else None

    def expired(self, now: datetime) -> Q:
        """The same rule as a condition."""
        if not self.keep_days:
            return Q(pk__in=[])
        return Q(**{f"{self.counts_from}__lte": now - timedelta(days=self.keep_days)})


class RetentionScope(NamedTuple):
    """Sessions with the same policy: of one source and these keys."""

    policy: RetentionPolicy
    source: str
    keys: Q

    def sessions(self) -> SessionQuerySet:
        return Session.objects.filter(self.keys, source=self.source)


def scopes() -> Iterator[RetentionScope]:
    """One scope per source, and one per source and key with its own limits. Each session is in exactly one."""
    with_limits = ApiKey.objects.exclude(**dict.fromkeys(LIMITS))
    others = Q(api_key=None) | ~Q(api_key__in=with_limits.values("pk"))
    for source in Session.Source.values:
        yield RetentionScope(policy_for(source), source, others)
    for key in with_limits.order_by("pk").iterator(chunk_size=200):
        for source in Session.Source.values:
            yield RetentionScope(policy_for(source, key), source, Q(api_key=key))


def expiry_of(session: Session) -> datetime | None:
    until: datetime | None = policy_for(session.source, session.api_key).expiry(partial(getattr, session))
    return until


def set_expiries(sessions: Iterable[Session]) -> None:
    policies: dict[tuple[str, int | None], RetentionPolicy] = {}
    for session in sessions:
        name = session.source, session.api_key_id
        if name not in policies:
            policies[name] = policy_for(session.source, session.api_key)
        session.expires_at = policies[name].expiry(partial(getattr, session))


def policy_for(source: str, api_key: ApiKey | None = None) -> RetentionPolicy:
    """The policy of a source, with the key's own limits in place of the general ones."""
    rule = _rule_of(source)
    if api_key is not None:
        rule = replace(rule, **{name: own for name in LIMITS if (own := getattr(api_key, name)) is not None})
    if max(rule.keep_days, rule.keep_body_days) <= MOST_DAYS:
        return rule
    return replace(rule, keep_days=min(rule.keep_days, MOST_DAYS), keep_body_days=min(rule.keep_body_days, MOST_DAYS))


def _rule_of(source: str) -> RetentionPolicy:
    if source == Session.Source.RELAY:
        return RetentionPolicy(
            keep_days=settings.CHAT_HISTORY_TTL_DAYS,
            keep_body_days=settings.CHAT_HISTORY_BODY_DAYS,
            max_messages=settings.CHAT_HISTORY_MAX_MESSAGES,
            max_sessions=settings.CHAT_HISTORY_MAX_SESSIONS,
        )
    if source == Session.Source.IMPORT:
        return RetentionPolicy(keep_days=settings.PARLEY_IMPORT_TTL_DAYS, counts_from="stored_at")
    if source == Session.Source.CHAT:
        return RetentionPolicy(keep_days=settings.PARLEY_CHAT_TTL_DAYS)
    return RetentionPolicy()
