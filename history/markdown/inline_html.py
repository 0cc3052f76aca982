"""The four HTML tags that a text may use: `<br>`, `<kbd>`, `<sub>` and `<sup>`. All others are shown as typed."""

from __future__ import annotations

import re

from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

_TAG = re.compile(r"<(?:(?P<br>br) ?/?|(?P<close>/?)(?P<name>kbd|sub|sup))>", re.IGNORECASE)


def parse_tag(state: StateInline, silent: bool) -> bool:
    """Inline rule at `<`."""
    found = _TAG.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "<" else None
    if not found:
        return False
    if not silent:
        if found["br"]:
            state.push("hardbreak", "br", 0)
        else:
            token = state.push("tag", found["name"].lower(), 0)
            token.content, token.info = found[0], "close" if found["close"] else "open"
    state.pos = found.end()
    return True


def pair_tags(tokens: list[Token]) -> None:
    """Turn the tags that have no partner in the same element back into text, so that the HTML is well formed."""
    if not any(token.type == "tag" for token in tokens):
        return
    opened: list[Token] = []
    for token in tokens:
        if token.type == "tag" and token.info == "close":
            if opened and opened[-1].type == "tag" and opened[-1].tag == token.tag:
                opened.pop().info = "paired"
                token.info = "paired end"
        elif token.nesting > 0 or token.type == "tag":
            opened.append(token)
        elif token.nesting < 0:
            while opened and opened.pop().type == "tag":
                pass
    for token in tokens:
        if token.type == "tag" and not token.info.startswith("paired"):
            token.type = "text"
