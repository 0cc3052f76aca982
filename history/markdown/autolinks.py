"""Bare addresses as links: `https://…`, `www.…` and e-mail addresses, as GitHub recognises them.

The rules look at the source and never further than the address itself, so a text of colons or at signs costs no more
than any other. Unlike on GitHub an address may directly follow Chinese text, and ends before Chinese punctuation.
"""

from __future__ import annotations

import re

from markdown_it.rules_inline import StateInline

from history.markdown.emphasis import classify

MAX_ADDRESS_CHARS = 2_000

_ASCII_HOST = r"[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+"
_ANY_HOST = r"[\w-]++(?:\.[\w-]++)*+"
_IN_ADDRESS = r"[^\s<\u2018-\u201f\u3000-\u3003\u3008-\u3011\u3014-\u301f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]"
# Behind the host an address goes on with ASCII punctuation: `https://a.example这里` ends with the host.
_WEB = re.compile(
    rf"(?P<start>https?://|ftp://|www\.)(?P<host>{_ASCII_HOST}|{_ANY_HOST})(?:[!-/:-@\[-`{{-~](?<!<){_IN_ADDRESS}*+)?",
    re.IGNORECASE,
)
_LOCAL_PART = re.compile(r"[A-Za-z0-9.+_-]{1,64}\Z")
_DOMAIN = re.compile(r"@[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)+")
_SCHEMES = ("https", "http", "ftp", "HTTPS", "HTTP", "Https", "Http")
_ENTITY = re.compile(r"&[A-Za-z0-9]{1,31};\Z")


def parse_web_address(state: StateInline, silent: bool) -> bool:
    """Inline rule at `://` and at `www.`: the scheme before the colon is already in the pending text."""
    position = state.pos
    if state.src.startswith("://", position):
        scheme = next((name for name in _SCHEMES if state.src.endswith(name, 0, position)), "")
        if not scheme:
            return False
    elif state.src.startswith("www.", position):
        scheme = ""
    else:
        return False
    start = position - len(scheme)
    if silent or state.linkLevel > 0 or not _can_follow(state.src, start):
        return False
    address = match_web_address(state.src, start, state.posMax)
    if address is None or not state.pending.endswith(scheme):
        return False
    state.pending = state.pending[: len(state.pending) - len(scheme)]
    return _push_link(state, address if scheme else f"http://{address}", address, end=start + len(address))


def parse_email_address(state: StateInline, silent: bool) -> bool:
    """Inline rule at `@`."""
    position = state.pos
    if state.src[position] != "@" or silent or state.linkLevel > 0:
        return False
    local = _LOCAL_PART.search(state.src, max(0, position - 65), position)
    domain = _DOMAIN.match(state.src, position, min(state.posMax, position + 255))
    if not local or not domain or not _can_follow(state.src, local.start()) or not state.pending.endswith(local[0]):
        return False
    ending = domain[0].rstrip("-_.")
    if ending != domain[0] and domain[0][-1] in "-_":
        return False
    state.pending = state.pending[: len(state.pending) - len(local[0])]
    address = local[0] + ending
    return _push_link(state, f"mailto:{address}", address, end=position + len(ending))


def match_web_address(text: str, start: int, end: int) -> str | None:
    """Return the address that begins at `start`, without the punctuation of the sentence around it."""
    found = _WEB.match(text, start, min(end, start + MAX_ADDRESS_CHARS))
    if not found or "_" in "".join(found["host"].split(".")[-2:]):
        return None
    address = _without_ending(found[0])
    return address if len(address) > len(found["start"]) else None


def _without_ending(address: str) -> str:
    """Cut what belongs to the sentence: punctuation, a closing bracket without its opening one, an entity."""
    opened, closed = address.count("("), address.count(")")
    end = len(address)
    while end:
        last = address[end - 1]
        if last in "?!.,:*_~'\"":
            end -= 1
        elif last == ")" and closed > opened:
            end, closed = end - 1, closed - 1
        elif last == ";":
            entity = _ENTITY.search(address, max(0, end - 33), end)
            end = entity.start() if entity else end - 1
        else:
            break
    return address[:end]


def _can_follow(text: str, start: int) -> bool:
    if start == 0:
        return True
    before = classify(text[start - 1])
    return before.is_space or before.is_cjk or text[start - 1] in "*_~(\"'“‘"


def _push_link(state: StateInline, href: str, label: str, *, end: int) -> bool:
    opening = state.push("link_open", "a", 1)
    opening.attrs = {"href": state.md.normalizeLink(href)}
    state.push("text", "", 0).content = label
    state.push("link_close", "a", -1)
    state.pos = end
    return True
