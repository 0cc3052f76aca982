"""Slows down whoever guesses passwords: so many failures per name and address, and per address, in a quarter hour."""

from datetime import timedelta
from ipaddress import IPv4Address, IPv6Network, ip_address

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from project.accounts.models import SignInFailure

WINDOW = timedelta(minutes=15)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 50


def is_blocked(name: str, *, address: str) -> bool:
    recent = SignInFailure.objects.filter(address=address, at__gt=timezone.now() - WINDOW)
    of_name = recent.filter(name_hash=hash_of(name))
    return of_name.count() >= PER_NAME_AND_ADDRESS or recent.count() >= PER_ADDRESS


def note_failure(name: str, *, address: str) -> None:
    SignInFailure.objects.filter(at__lte=timezone.now() - WINDOW).delete()
    SignInFailure.objects.create(name_hash=hash_of(name), address=address)


def forget_failures(name: str, *, address: str) -> None:
    SignInFailure.objects.filter(name_hash=hash_of(name), address=address).delete()


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
