"""API keys: made once, shown once, refused with a reason, revoked everywhere within a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from history.access import audit, keys
from history.access.key_cache import (
    ApiKeyError,
    ExpiredKey,
    KeyRing,
    KeysUnavailable,
    MalformedKey,
    RevokedKey,
    ScopeMissing,
    UnknownKey,
    has_scope,
)
from history.models import ApiKey, AuditEvent
from project.accounts.models import User

pytestmark = pytest.mark.django_db


class Clock:
    """Time that passes when the test says so, for both kinds of clock."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.start = timezone.now()

    def __call__(self) -> float:
        return self.seconds

    def now(self) -> Any:
        return self.start + timedelta(seconds=self.seconds - 1000.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ring(clock: Clock) -> KeyRing:
    return KeyRing(clock=clock, now=clock.now)


@contextmanager
def database_away(error: type[Exception] = OperationalError) -> Iterator[list[str]]:
    """Every query fails, as it does when the server is gone; the list holds what was tried."""
    tried: list[str] = []

    def fail(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        tried.append(sql)
        raise error("the server closed the connection")

    with connection.execute_wrapper(fail):
        yield tried


def queries(call: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        call()
    return [query["sql"] for query in captured.captured_queries]


# Making.


def test_a_new_key_is_shown_once_and_stored_as_a_hash(ada: User) -> None:
    new = keys.create(name="laptop", owner=ada)
    brand, prefix, secret = new.secret.split("_")
    assert (brand, prefix) == ("parley", new.api_key.prefix)
    assert len(secret) >= 43
    row = ApiKey.objects.filter(pk=new.api_key.pk).values().get()
    assert not [name for name, value in row.items() if secret in str(value)]
    assert len(row["secret_hash"]) == 32
    assert secret not in repr(new)


def test_no_two_keys_are_alike(ada: User) -> None:
    assert len({keys.create(name="same", owner=ada).secret for _ in range(20)}) == 20


def test_a_new_key_records_redacted_and_may_relay_read_and_export(ada: User) -> None:
    api_key = keys.create(name="laptop", owner=ada).api_key
    assert (api_key.recording, api_key.scopes) == ("redacted", ["relay", "read", "export"])
    assert not api_key.owner_wide


def test_without_an_owner_the_first_staff_user_gets_the_key(ada: User, staff: User) -> None:
    assert keys.create(name="laptop").api_key.owner_id == staff.pk


def test_without_any_staff_user_the_error_says_what_to_do(ada: User) -> None:
    with pytest.raises(keys.NotAllowedError, match="create a staff user first"):
        keys.create(name="laptop")


def test_an_unknown_scope_is_named_with_the_known_ones(ada: User) -> None:
    with pytest.raises(keys.CannotCreateError, match=r"Unknown scope fly. Choose from relay, read, write"):
        keys.create(name="laptop", owner=ada, scopes=["read", "fly"])


@pytest.mark.parametrize(
    "wrong", [{"name": " "}, {"scopes": []}, {"recording": "sometimes"}, {"requests_per_minute": -1}]
)
def test_wrong_arguments_make_no_key(ada: User, wrong: dict[str, Any]) -> None:
    with pytest.raises(keys.CannotCreateError):
        keys.create(**{"name": "laptop", "owner": ada, **wrong})
    assert not ApiKey.objects.exists()


def test_only_staff_may_own_an_admin_key(ada: User, staff: User) -> None:
    with pytest.raises(keys.NotAllowedError, match="'ada' is not staff"):
        keys.create(name="all", owner=ada, scopes=["admin"])
    assert keys.create(name="all", owner=staff, scopes=["admin", "read"]).api_key.scopes == ["read", "admin"]


@pytest.mark.parametrize(
    "limits",
    [
        {"requests_per_minute": -1},
        {"requests_per_minute": 2**31},
        {"tokens_per_month": 2**63},
        {"cost_per_day": Decimal("NaN")},
        {"cost_per_day": Decimal("Infinity")},
        {"cost_per_month": Decimal("100000000")},
    ],
)
def test_a_limit_that_no_column_holds_is_refused_on_every_database(ada: User, limits: Any) -> None:
    with pytest.raises(keys.CannotCreateError):
        keys.create(name="laptop", owner=ada, **limits)


def test_limits_are_kept_on_the_key(ada: User) -> None:
    api_key = keys.create(name="laptop", owner=ada, requests_per_minute=60, max_sessions=5).api_key
    api_key.refresh_from_db()
    assert (api_key.requests_per_minute, api_key.max_sessions, api_key.tokens_per_day) == (60, 5, None)


# Checking.


def test_the_right_key_is_accepted(ada: User, ring: KeyRing) -> None:
    new = keys.create(name="laptop", owner=ada)
    assert ring.authenticate(new.secret, scope="relay") == new.api_key
    assert keys.authenticate(new.secret) == new.api_key


@pytest.mark.parametrize(
    "raw", ["", "hello", "sk-123", "parley_", "parley_abc_", "parley_ABCDEFGH_x", "\ud800", "a" * 9999]
)
def test_what_is_no_key_of_ours_is_called_malformed_without_asking_the_database(ring: KeyRing, raw: str) -> None:
    with CaptureQueriesContext(connection) as captured, pytest.raises(MalformedKey, match="parley_<prefix>_<secret>"):
        ring.authenticate(raw)
    assert not captured.captured_queries


def test_a_wrong_secret_and_a_wrong_prefix_are_refused_alike(ada: User, ring: KeyRing) -> None:
    new = keys.create(name="laptop", owner=ada)
    wrong_secret = f"parley_{new.api_key.prefix}_{'x' * 43}"
    wrong_prefix = f"parley_{'x' * 10}_{'x' * 43}"
    ring.authenticate(new.secret)
    refusals, asked = [], []
    for raw in (wrong_secret, wrong_prefix):
        with CaptureQueriesContext(connection) as captured, pytest.raises(UnknownKey) as refused:
            ring.authenticate(raw)
        refusals.append(str(refused.value))
        asked.append(len(captured.captured_queries))
    assert refusals[0] == refusals[1]
    assert asked == [1, 1]  # a prefix that is in use is not answered faster


def test_the_state_of_a_key_is_told_only_to_who_has_the_secret(ada: User, ring: KeyRing) -> None:
    new = keys.create(name="laptop", owner=ada)
    keys.revoke(new.api_key, actor=ada)
    with pytest.raises(UnknownKey):
        ring.authenticate(f"parley_{new.api_key.prefix}_{'x' * 43}")
    with pytest.raises(RevokedKey, match=new.api_key.prefix):
        ring.authenticate(new.secret)


def test_an_expired_key_is_refused_from_that_moment_even_when_remembered(
    ada: User, ring: KeyRing, clock: Clock
) -> None:
    new = keys.create(name="laptop", owner=ada, expires_at=clock.now() + timedelta(seconds=0.5))
    ring.authenticate(new.secret)
    clock.seconds += 0.6
    with pytest.raises(ExpiredKey):
        ring.authenticate(new.secret)


def test_a_key_without_the_scope_is_told_which_one(ada: User, ring: KeyRing) -> None:
    new = keys.create(name="laptop", owner=ada, scopes=["read"])
    with pytest.raises(ScopeMissing, match="lacks the scope 'delete'") as refused:
        ring.authenticate(new.secret, scope="delete")
    assert refused.value.status == 403


def test_a_key_of_a_deactivated_user_is_refused(ada: User, ring: KeyRing) -> None:
    new = keys.create(name="laptop", owner=ada)
    User.objects.filter(pk=ada.pk).update(is_active=False)
    with pytest.raises(RevokedKey, match="is disabled"):
        ring.authenticate(new.secret)


def test_admin_counts_only_while_the_owner_is_staff(staff: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="all", owner=staff, scopes=["admin", "read"])
    assert has_scope(ring.authenticate(new.secret, scope="admin"), "admin")
    User.objects.filter(pk=staff.pk).update(is_staff=False)
    clock.seconds += 1.0
    with pytest.raises(ScopeMissing):
        ring.authenticate(new.secret, scope="admin")
    assert ring.authenticate(new.secret, scope="read") == new.api_key


def test_every_refusal_says_whether_a_retry_helps() -> None:
    assert {kind for kind in ApiKeyError.__subclasses__() if kind.retry_helps} == {KeysUnavailable}


# Revoking.


def test_revoking_is_audited_once(ada: User) -> None:
    api_key = keys.create(name="laptop", owner=ada).api_key
    assert keys.revoke(api_key, actor=ada)
    first = api_key.revoked_at
    assert not keys.revoke(api_key, actor=ada)
    assert api_key.revoked_at == first
    event = AuditEvent.objects.get(action="key.revoked")
    assert (event.actor, event.key) == (ada.pk, api_key.pk)
    assert AuditEvent.objects.filter(action="key.created", key=api_key.pk).count() == 1
    assert not list(audit.flaws())


def test_a_revoked_key_is_refused_at_once_in_the_same_process(ada: User) -> None:
    new = keys.create(name="laptop", owner=ada)
    keys.authenticate(new.secret)
    keys.revoke(new.api_key, actor=None)
    with pytest.raises(RevokedKey):
        keys.authenticate(new.secret)


def test_a_revoked_key_is_refused_within_a_second_in_any_other_process(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    keys.revoke(new.api_key, actor=None)  # forgets it in the ring of this process; `ring` stands for another one
    clock.seconds += 0.99
    assert ring.authenticate(new.secret) == new.api_key
    clock.seconds += 0.01
    with pytest.raises(RevokedKey):
        ring.authenticate(new.secret)


# Remembering.


def test_a_key_is_looked_up_at_most_once_a_second(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    assert queries(lambda: [ring.authenticate(new.secret) for _ in range(50)]) == []
    clock.seconds += 1.0
    assert len(queries(lambda: [ring.authenticate(new.secret) for _ in range(50)])) == 1


def test_a_refused_key_is_looked_up_at_most_once_a_second(ring: KeyRing) -> None:
    raw = f"parley_{'x' * 10}_{'x' * 43}"
    with CaptureQueriesContext(connection) as captured:
        for _ in range(20):
            with pytest.raises(UnknownKey):
                ring.authenticate(raw)
    assert len(captured.captured_queries) == 1


def test_recall_answers_without_the_database_or_not_at_all(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada, scopes=["read"])
    with database_away() as tried:
        assert ring.recall(new.secret) is None
    ring.authenticate(new.secret)
    with database_away():
        assert ring.recall(new.secret) == new.api_key
        with pytest.raises(ScopeMissing):
            ring.recall(new.secret, scope="relay")
        clock.seconds += 1.0
        assert ring.recall(new.secret) is None
    assert tried == []


def test_a_key_that_is_in_use_is_looked_up_ahead_of_time_by_one_caller(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    due: list[str] = []
    ring.recall(new.secret, when_due=due.append)
    assert due == []
    clock.seconds += 0.5
    for _ in range(3):
        ring.recall(new.secret, when_due=due.append)
    assert due == [new.secret]
    ring.renew(new.secret)
    clock.seconds += 0.9
    with database_away():
        assert ring.recall(new.secret) == new.api_key


def test_what_was_looked_up_ahead_of_time_may_be_that_a_key_has_ended(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    ApiKey.objects.filter(pk=new.api_key.pk).update(revoked_at=timezone.now())
    clock.seconds += 0.5
    ring.renew(new.secret)
    with pytest.raises(RevokedKey):
        ring.recall(new.secret)


def test_without_the_database_a_look_ahead_changes_nothing(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    with database_away():
        clock.seconds += 0.5
        ring.renew(new.secret)
        assert ring.recall(new.secret) == new.api_key


def test_a_flood_of_guesses_does_not_push_out_a_known_key(ada: User, clock: Clock) -> None:
    ring = KeyRing(clock=clock, now=clock.now, size=5, strangers=5)
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    for number in range(20):
        with pytest.raises(UnknownKey):
            ring.authenticate(f"parley_guess_{number:043}")
    assert ring.recall(new.secret) == new.api_key


def test_the_memory_for_keys_is_bounded(ada: User, clock: Clock) -> None:
    ring = KeyRing(clock=clock, now=clock.now, size=3)
    made = [keys.create(name="many", owner=ada).secret for _ in range(5)]
    for secret in made:
        ring.authenticate(secret)
    assert [ring.recall(secret) is not None for secret in made] == [False, False, True, True, True]


@pytest.mark.django_db(transaction=True)
def test_many_threads_cause_one_look_up(ada: User, ring: KeyRing) -> None:
    """The first caller asks the database; the others wait for its answer."""
    new = keys.create(name="laptop", owner=ada)
    asked: list[str] = []
    accepted: list[ApiKey] = []
    together = threading.Barrier(8)

    def listen(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        asked.extend(["look-up"] if sql.startswith("SELECT") and "secret_hash" in sql else [])
        time.sleep(0.02)
        return execute(sql, *rest)

    def call() -> None:
        connection.ensure_connection()
        together.wait()
        with connection.execute_wrapper(listen):
            accepted.append(ring.authenticate(new.secret))
        connection.close()

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert accepted == [new.api_key] * 8
    assert asked == ["look-up"]


# Without the database.


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_keys_known_in_the_last_ten_minutes_pass_while_the_database_is_away(
    ada: User, ring: KeyRing, clock: Clock, error: type[Exception]
) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    with database_away(error):
        clock.seconds += 599
        assert ring.authenticate(new.secret) == new.api_key
        clock.seconds += 1
        with pytest.raises(KeysUnavailable) as refused:
            ring.authenticate(new.secret)
    assert (refused.value.retry_helps, refused.value.status) == (True, 503)
    assert ring.authenticate(new.secret) == new.api_key


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no server that could end a connection")
def test_a_connection_that_the_server_ended_is_replaced(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    with pytest.raises(OperationalError), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    clock.seconds += 1
    assert ring.authenticate(new.secret) == new.api_key  # on trust
    clock.seconds += 1
    assert len(queries(lambda: ring.authenticate(new.secret))) == 1


def test_a_database_that_is_away_is_asked_at_most_once_a_second_per_key(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    clock.seconds += 2
    with database_away() as tried:
        for _ in range(20):
            ring.authenticate(new.secret)
    assert len(tried) == 1


def test_an_unknown_key_is_told_to_come_back_while_the_database_is_away(ring: KeyRing) -> None:
    with database_away(), pytest.raises(KeysUnavailable, match="Try again"):
        ring.authenticate(f"parley_{'x' * 10}_{'x' * 43}")


def test_a_key_known_to_be_revoked_does_not_come_back_while_the_database_is_away(
    ada: User, ring: KeyRing, clock: Clock
) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    keys.revoke(new.api_key, actor=None)
    clock.seconds += 1
    with pytest.raises(RevokedKey):
        ring.authenticate(new.secret)
    clock.seconds += 1
    with database_away(), pytest.raises(RevokedKey):
        ring.authenticate(new.secret)


# Last use.


def test_the_last_use_is_noted_at_most_once_a_minute(ada: User, ring: KeyRing, clock: Clock) -> None:
    new = keys.create(name="laptop", owner=ada)
    ring.authenticate(new.secret)
    noted = ApiKey.objects.get(pk=new.api_key.pk).last_used_at
    assert noted == clock.now()
    clock.seconds += 59
    ring.authenticate(new.secret)
    assert ApiKey.objects.get(pk=new.api_key.pk).last_used_at == noted
    clock.seconds += 2
    ring.authenticate(new.secret)
    assert ApiKey.objects.get(pk=new.api_key.pk).last_used_at == clock.now()


def test_a_call_works_when_its_use_cannot_be_stored(ada: User, ring: KeyRing, caplog: pytest.LogCaptureFixture) -> None:
    new = keys.create(name="laptop", owner=ada)

    def refuse_writes(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith("UPDATE"):
            raise OperationalError("database is locked")
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse_writes):
        assert ring.authenticate(new.secret) == new.api_key
    assert "was not noted" in caplog.text
    assert new.secret not in caplog.text


# Finding.


def test_a_key_is_found_by_its_prefix_or_as_a_whole(ada: User) -> None:
    new = keys.create(name="laptop", owner=ada)
    assert keys.find(new.api_key.prefix) == keys.find(new.secret) == new.api_key
    assert keys.find("nothing") is None


def test_lists_show_keys_in_force_unless_all_are_asked_for(ada: User) -> None:
    good = keys.create(name="good", owner=ada).api_key
    ended = keys.create(name="ended", owner=ada).api_key
    expired = keys.create(name="old", owner=ada, expires_at=timezone.now() - timedelta(days=1)).api_key
    keys.revoke(ended, actor=ada)
    assert list(keys.list_keys()) == [good]
    assert list(keys.list_keys(include_ended=True)) == [good, ended, expired]


# The page that explains it.


def test_the_documentation_names_every_scope_refusal_and_limit() -> None:
    page = (Path(__file__).parents[3] / "docs" / "keys.md").read_text()
    options = [f"--{name.replace('_', '-')}" for name in keys.KeyLimits.__annotations__]
    refusals = [kind.__name__ for kind in ApiKeyError.__subclasses__()]
    assert [name for name in (*keys.SCOPES, *refusals, *options) if f"`{name}`" not in page] == []
