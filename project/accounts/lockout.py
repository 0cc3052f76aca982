"""Lockout after failed sign-ins: limits by name, by address, and by both, in 15 minutes.

An attempt counts as a failure before its password is checked, under a lock: a hundred guesses at once are a hundred.
A signed cookie exempts browsers in which the user has signed in before from the limit by name, so that strangers cannot
lock a user out.
"""

from datetime import timedelta
from ipaddress import IPv4Address, IPv6Network, ip_address

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from history.db.transactions import writing
from project.accounts.models import SignInFailure

WINDOW = timedelta(minutes=15)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 50

PER_NAME = 100  # from all addresses together: to lock a user out takes twenty addresses every 15 minutes

COOKIE = "parley_known"
COOKIE_AGE = timedelta(days=365)

_LOCK = 0x5369676E496E  # any number that no other advisory lock uses


def claim_attempt(name: str, *, address: str, from_known_browser: bool = False) -> bool:
    """Whether the password may be checked. Then the attempt counts as a failure until `forget_failures` removes it."""
    if _is_blocked(name, address=address, from_known_browser=from_known_browser):
        return False
    with writing():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:  # waits for the one before it, as writing on SQLite does
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        SignInFailure.objects.filter(at__lte=timezone.now() - WINDOW).delete()
        if _is_blocked(name, address=address, from_known_browser=from_known_browser):
            return False
        SignInFailure.objects.create(name_hash=hash_of(name), address=address)
        return True


def forget_failures(name: str, *, address: str) -> None:
    SignInFailure.objects.filter(name_hash=hash_of(name), address=address).delete()


def _is_blocked(name: str, *, address: str, from_known_browser: bool) -> bool:
    recent = SignInFailure.objects.filter(at__gt=timezone.now() - WINDOW)
    from_address, of_name = recent.filter(address=address), recent.filter(name_hash=hash_of(name))
    return (
        from_address.filter(name_hash=hash_of(name)).count() >= PER_NAME_AND_ADDRESS
        or from_address.count() >= PER_ADDRESS
        or (not from_known_browser and of_name.count() >= PER_NAME)
    )


def remember_browser(response: HttpResponse, *, name: str) -> None:
    response.set_signed_cookie(
        COOKIE,
        hash_of(name),
        salt=COOKIE,
        max_age=COOKIE_AGE,
        path=settings.SESSION_COOKIE_PATH,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def is_known_browser(request: HttpRequest, *, name: str) -> bool:
    cookie = request.get_signed_cookie(COOKIE, default="", salt=COOKIE, max_age=COOKIE_AGE)
    return constant_time_compare(cookie or "", hash_of(name))


def hash_of(name: str) -> str:
    return salted_hmac("sign-in failure", name.casefold(), algorithm="sha256").hexdigest()


def address_of(request: HttpRequest) -> str:
    """The address of the client: the peer, or what the outermost trusted proxy saw.

    Each proxy appends the address that called it. The client may have written what is left of the trusted ones.
    """
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",")]
    trusted = settings.PARLEY_TRUSTED_PROXIES
    if 0 < trusted <= len(forwarded) and forwarded[-trusted]:
        return network_of(forwarded[-trusted])
    return network_of(str(request.META.get("REMOTE_ADDR") or ""))


def network_of(address: str) -> str:
    """The address, or its network of 64 bits for IPv6: one client can use all addresses of it."""
    # Some proxies append the port, which differs for each connection: 192.0.2.1:4711 or [2001:db8::1]:4711.
    host = address[1:].partition("]")[0] if address.startswith("[") else address
    try:
        parsed = ip_address(host.partition(":")[0] if host.count(":") == 1 else host)
    except ValueError:
        return address[:45]
    if isinstance(parsed, IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((parsed.packed, 64), strict=False))
