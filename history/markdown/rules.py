"""Rules of the Markdown parser: emphasis, bare addresses, HTML tags and footnotes.

Emphasis: CommonMark decides by spaces and punctuation whether a delimiter opens or closes. In `**注意：**这里` the
closing `**` would stay a pair of stars, so a CJK character beside a delimiter counts like a space.

Addresses become links as on GitHub, but one may directly follow Chinese text, and ends before Chinese punctuation. The
rules never look further than the address itself, so a text of colons or at signs costs no more than any other.

Footnotes: `text[^1]` refers to `[^1]: note`; the notes are shown at the end, those without a reference last.
"""

import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

_DEFINITION = re.compile(r"\[\^([^\[\]\s]{1,50})\]:(?=[ \t\n]|$)")
_REFERENCE = re.compile(r"\[\^([^\[\]\s]{1,50})\]")
_CONTENT_INDENT = 4


@dataclass
class Footnotes:
    """The notes of one text: their tokens by label, and the numbers given so far (1 for the first of `labels`)."""

    prefix: str = ""
    bodies: dict[str, list[list[Token]]] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    referenced: set[str] = field(default_factory=set)

    def number_of(self, label: str) -> int:
        if label not in self.numbers:
            self.labels.append(label)
            self.numbers[label] = len(self.labels)
        return self.numbers[label]

    def anchor(self, number: int) -> str:
        return f"{self.prefix}fn-{number}"

    def reference_anchor(self, number: int) -> str:
        return f"{self.prefix}fnref-{number}"

    @property
    def anchors(self) -> re.Pattern[str]:
        return re.compile(rf"{re.escape(self.prefix)}fn(?:ref)?-\d+")


def parse_definition(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule: a note goes to the next empty line, and behind it as far as its lines are indented by four."""
    position = state.bMarks[start_line] + state.tShift[start_line]
    ends_note = silent and state.parentType == "paragraph" and state.env.get("is_in_note")
    if (state.level > 0 and not ends_note) or state.is_code_block(start_line):
        return False
    match = _DEFINITION.match(state.src, position, state.eMarks[start_line])
    if not match or (ends_note and state.sCount[start_line] >= state.blkIndent):
        return False
    if silent:
        return True
    opening = state.push("footnote_open", "", 1)
    opening.info = match[1]
    opening.map = lines = [start_line, 0]
    state.env["is_in_note"] = True
    _parse_body(state, start_line, end_line, body=match.end())
    state.env["is_in_note"] = False
    state.push("footnote_close", "", -1)
    lines[1] = state.line
    return True


def _parse_body(state: StateBlock, start_line: int, end_line: int, *, body: int) -> None:
    """Parse the lines of the note as blocks; its first line begins at `body`."""
    saved = state.bMarks[start_line], state.tShift[start_line], state.sCount[start_line], state.parentType
    text = state.skipSpaces(body)
    state.bMarks[start_line], state.tShift[start_line] = body, min(text, state.eMarks[start_line]) - body
    state.blkIndent += _CONTENT_INDENT
    state.sCount[start_line] = state.blkIndent
    state.parentType = "footnote"
    if text >= state.eMarks[start_line]:
        state.line = start_line + 1
        if state.line < end_line and state.sCount[state.line] >= state.blkIndent:
            state.md.block.tokenize(state, state.line, end_line)
    else:
        state.md.block.tokenize(state, start_line, end_line)
    state.blkIndent -= _CONTENT_INDENT
    state.bMarks[start_line], state.tShift[start_line], state.sCount[start_line], state.parentType = saved


def parse_reference(state: StateInline, silent: bool) -> bool:
    """Inline rule at `[^`; a label without a note stays text."""
    notes: Footnotes | None = state.env.get("footnotes")
    if notes is None or state.linkLevel > 0 or not state.src.startswith("[^", state.pos):
        return False
    match = _REFERENCE.match(state.src, state.pos, state.posMax)
    if not match or match[1] not in notes.bodies:
        return False
    if not silent:
        token = state.push("footnote_reference", "sup", 0)
        number = notes.number_of(match[1])
        token.meta = {"number": number, "is_first": match[1] not in notes.referenced}
        notes.referenced.add(match[1])
    state.pos = match.end()
    return True


_CJK = re.compile(
    "[\u1100-\u11ff\u2e80-\u303f\u3040-\u9fff\ua000-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f"
    "\uff00-\uffef\U00020000-\U0003ffff]"
)


class Neighbour(NamedTuple):
    is_space: bool
    is_punctuation: bool
    is_cjk: bool


@lru_cache(maxsize=1024)
def classify(character: str) -> Neighbour:
    """Classify one neighbour; an empty string is the start or the end of the text."""
    if not character or character.isspace():
        return Neighbour(True, False, False)
    is_punctuation = unicodedata.category(character)[0] in "PS"
    return Neighbour(False, is_punctuation, bool(_CJK.match(character)))


def parse_emphasis(state: StateInline, silent: bool) -> bool:
    """Inline rule: put the delimiters of a run on the list that is paired later.

    A single `~` between letters or digits is a range (`3~5`) and no delimiter.
    """
    start, marker = state.pos, state.src[state.pos]
    if silent or marker not in "*_~":
        return False
    end = start + 1
    while end < state.posMax and state.src[end] == marker:
        end += 1
    length = end - start
    can_open, can_close = _flanking(
        classify(state.src[start - 1] if start else ""),
        classify(state.src[end] if end < state.posMax else ""),
        splits_words=marker == "*" or (length == 2 and marker == "~"),
    )
    state.pos = end
    if not (can_open or can_close) or (marker == "~" and length > 2):
        state.append_pending(state.src[start:end])
    elif marker == "~":
        _push(state, marker * length, length=0, can_open=can_open, can_close=can_close)
    else:
        for _ in range(length):
            _push(state, marker, length=length, can_open=can_open, can_close=can_close)
    return True


def _push(state: StateInline, content: str, *, length: int, can_open: bool, can_close: bool) -> None:
    state.push("text", "", 0).content = content
    place = len(state.tokens) - 1
    state.delimiters.append(Delimiter(ord(content[0]), length, place, -1, can_open, can_close))


def _flanking(before: Neighbour, after: Neighbour, *, splits_words: bool) -> tuple[bool, bool]:
    opens = not after.is_space and (not after.is_punctuation or any(before))
    closes = not before.is_space and (not before.is_punctuation or any(after))
    if splits_words:
        return opens, closes
    return opens and (not closes or before.is_punctuation), closes and (not opens or after.is_punctuation)


MAX_ADDRESS_CHARS = 2_000

_ASCII_HOST = r"[A-Za-z0-9_-]++(?:\.[A-Za-z0-9_-]++)*+"
_ANY_HOST = r"[\w-]++(?:\.[\w-]++)*+"
_IN_ADDRESS = r"[^\s<\u2018-\u201f\u3000-\u3003\u3008-\u3011\u3014-\u301f\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f]"
# After the host an address continues with ASCII punctuation: `https://a.example这里` ends with the host.
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
    has_scheme = state.src.startswith("://", state.pos)
    scheme = next((name for name in _SCHEMES if has_scheme and state.src.endswith(name, 0, state.pos)), "")
    start = state.pos - len(scheme)
    if silent or state.linkLevel > 0 or not (scheme or state.src.startswith("www.", start)):
        return False
    if not _can_follow(state.src, start):
        return False
    address = match_web_address(state.src, start, state.posMax)
    if address is None or not state.pending.endswith(scheme):
        return False
    state.pending = state.pending[: len(state.pending) - len(scheme)]
    return _push_link(state, address if scheme else f"http://{address}", address, end=start + len(address))


def parse_email_address(state: StateInline, silent: bool) -> bool:
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
    match = _WEB.match(text, start, min(end, start + MAX_ADDRESS_CHARS))
    if not match or "_" in "".join(match["host"].split(".")[-2:]):
        return None
    address = _without_ending(match[0])
    return address if len(address) > len(match["start"]) else None


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
    before = text[start - 1] if start else ""
    return before in "*_~(\"'“‘" or classify(before).is_space or classify(before).is_cjk


def _push_link(state: StateInline, href: str, label: str, *, end: int) -> bool:
    opening = state.push("link_open", "a", 1)
    opening.attrs = {"href": state.md.normalizeLink(href)}
    state.push("text", "", 0).content = label
    state.push("link_close", "a", -1)
    state.pos = end
    return True


_TAG = re.compile(r"<(?:(?P<br>br) ?/?|(?P<close>/?)(?P<name>kbd|sub|sup))>", re.IGNORECASE)


def parse_tag(state: StateInline, silent: bool) -> bool:
    match = _TAG.match(state.src, state.pos, state.posMax) if state.src[state.pos] == "<" else None
    if not match:
        return False
    if not silent:
        if match["br"]:
            state.push("hardbreak", "br", 0)
        else:
            token = state.push("tag", match["name"].lower(), 0)
            token.content, token.info = match[0], "close" if match["close"] else "open"
    state.pos = match.end()
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
