"""Slows down whoever guesses passwords: so many wrong ones in a quarter of an hour, then the door stays shut.

An attempt costs its place before its password is looked at, and gets it back if the password was right. Counting and
writing are one step that nobody else can come between, so a hundred guesses at the same moment are no more than a
hundred one after the other.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Network, ip_address

from django.conf import settings
from django.db import connection
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from history.db.transactions import writing
from project.accounts.models import SignInFailure

WINDOW = timedelta(minutes=15)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 50

PER_NAME = 100
"""From all addresses together. Whoever wants to keep a person out needs twenty addresses each quarter of an hour, and
does not reach the browsers in which that person has signed in before."""

_LOCK = 0x5369676E496E  # any number that no other advisory lock uses


def claim_attempt(name: str, *, address: str, from_known_browser: bool = False) -> bool:
    """May this password be looked at? If so, the attempt stands as a failure until `forget_failures` undoes it."""
    if _is_blocked(name, address=address, from_known_browser=from_known_browser):
        return False
    with _one_at_a_time():
        SignInFailure.objects.filter(at__lte=timezone.now() - WINDOW).delete()
        if _is_blocked(name, address=address, from_known_browser=from_known_browser):
            return False
        SignInFailure.objects.create(name_hash=hash_of(name), address=address)
        return True


def forget_failures(name: str, *, address: str) -> None:
    """The password was right."""
    SignInFailure.objects.filter(name_hash=hash_of(name), address=address).delete()


def _is_blocked(name: str, *, address: str, from_known_browser: bool) -> bool:
    recent = SignInFailure.objects.filter(at__gt=timezone.now() - WINDOW)
    from_address, of_name = recent.filter(address=address), recent.filter(name_hash=hash_of(name))
    return (
        from_address.filter(name_hash=hash_of(name)).count() >= PER_NAME_AND_ADDRESS
        or from_address.count() >= PER_ADDRESS
        or (not from_known_browser and of_name.count() >= PER_NAME)
    )


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    """A transaction that waits for the one before it. On SQLite every transaction that may write does."""
    with writing():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        yield


def hash_of(name: str) -> str:
    return salted_hmac("sign-in failure", name.casefold(), algorithm="sha256").hexdigest()


def address_of(request: HttpRequest) -> str:
    """Who is asking: the peer, or what the outermost proxy that we trust saw.

    Each proxy appends the address it was called from, so the entry that counts is as many from the right as there are
    proxies; everything left of it was written by the caller and proves nothing.
    """
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",")]
    trusted = settings.PARLEY_TRUSTED_PROXIES
    if 0 < trusted <= len(forwarded) and forwarded[-trusted]:
        return whose(forwarded[-trusted])
    return whose(str(request.META.get("REMOTE_ADDR") or ""))


def whose(address: str) -> str:
    """The address; of IPv6 the network of 64 bits, because everybody has as many addresses in theirs as they like."""
    # Some proxies append the port, 192.0.2.1:4711 or [2001:db8::1]:4711, which is another for each connection.
    host = address[1:].partition("]")[0] if address.startswith("[") else address
    try:
        found = ip_address(host.partition(":")[0] if host.count(":") == 1 else host)
    except ValueError:
        return address[:45]
    if isinstance(found, IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((found.packed, 64), strict=False))
