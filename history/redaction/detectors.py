r"""Detectors of credentials and personal numbers, in linear time, without Django.

Most texts hold no secret, so a pattern is searched only if the text has a run of characters that could be a token, or a
needle of the detector. Patterns begin with a literal (a fast search) and look back from there to see where the token
begins; every repetition is bounded or possessive. A secret behind an escape (`\nsk-…`, `%3Dsk-…`) begins there too.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from string import ascii_letters, digits

TOKEN_CHARS = 16  # no token of a vendor is shorter; few words of prose are longer
SHORTEST = 6  # `://:x@` is the shortest thing that any detector finds
LONGEST_VALUE = 4096  # no secret that only its name gives away is longer
MARKED = "[redacted:"
_TOKEN_RUN = b"a" * TOKEN_CHARS
_TOKEN_TABLE = bytes(ord("a") if chr(code) in f"{ascii_letters}{digits}_-" else ord(" ") for code in range(256))
Check = Callable[[str], bool]


def placeholder(name: str) -> str:
    return f"{MARKED}{name}]"


def glance(text: str) -> str:
    """The text in lower-case ASCII, other characters as `?`: enough to see at once what cannot be in it."""
    ascii_only = text if text.isascii() else text.encode("ascii", "replace").decode("ascii")
    return ascii_only.lower()


class Detector:
    """Replaces what its patterns find (their group `secret`, or all of it) where `confirm` agrees.

    `needles` are in lower case, separated by spaces (`·` is one in a needle): without one of them in the text no
    pattern can match. With `reads_pairs` it also reads `name="value"` of a JSON object, where these are two texts.
    """

    def __init__(
        self, name: str, needles: str, *patterns: str, reads_pairs: bool = False, confirm: Check | None = None
    ) -> None:
        self.name, self.reads_pairs, self.confirm = name, reads_pairs, confirm
        self.needles = tuple(needle.replace("·", " ") for needle in needles.split())
        self._sources = patterns

    @cached_property
    def patterns(self) -> tuple[re.Pattern[str], ...]:
        """Compiled on first use: most processes meet few of the needles."""
        return tuple(map(re.compile, self._sources))

    def __call__(self, text: str, /) -> tuple[str, Counter[str]]:
        hits: Counter[str] = Counter()
        return search(text, glance(text), (self,), hits), hits

    def replace(self, text: str, hits: Counter[str]) -> str:
        """The text without its secrets; adds to `hits`."""
        for pattern in self.patterns:
            text = pattern.sub(lambda match: self._mark(match, hits), text)
        return text

    def _mark(self, match: re.Match[str], hits: Counter[str]) -> str:
        group = "secret" if "secret" in match.re.groupindex else 0
        secret, whole = match[group], match[0]
        if self.confirm and not self.confirm(secret):
            return whole
        hits[self.name] += 1
        start = match.start(group) - match.start()
        return f"{whole[:start]}{placeholder(self.name)}{whole[start + len(secret) :]}"


def search(text: str, seen: str, detectors: Iterable[Detector], hits: Counter[str]) -> str:
    """The text after all detectors; `seen` stays good on the way, because a placeholder adds no needle."""
    for detector in detectors:
        for needle in detector.needles:
            if needle in seen:
                text = detector.replace(text, hits)
                break
    return text


_MACRO = re.compile(r"«(\w+) ?([^ »]*) ?([^»]*)»")
_FORMATS = tomllib.loads(Path(__file__).with_name("token_formats.toml").read_text(encoding="utf-8"))


def _read_formats(table: str) -> tuple[Detector, ...]:
    formats = _FORMATS[table].items()
    return tuple(Detector(name, needles, *map(_expand, patterns)) for name, (needles, *patterns) in formats)


def _expand(pattern: str) -> str:
    return _MACRO.sub(_expand_macro, pattern)


def _expand_macro(macro: re.Match[str]) -> str:
    match macro.groups():
        case "starts", literal, before:
            return _starts(literal, before or "A-Za-z0-9")
        case "alone", literal, _:
            return _starts(literal, "A-Za-z0-9+/_-")
        case "border", before, _:  # where a token may begin that has no literal: `_starts` before its first character
            before = before or "A-Za-z0-9"
            return rf"(?:(?<![{before}])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{{2}})|(?<=\\u[0-9A-Fa-f]{{4}}))"
    return str(_FORMATS["macros"][macro[1]])


def _starts(literal: str, before: str) -> str:
    """The literal, where no character of `before` precedes it, or an escape sequence does."""
    return (
        rf"{literal}(?:(?<![{before}]{literal})|(?<=\\[nrtbf]{literal})"
        rf"|(?<=%[0-9A-Fa-f]{{2}}{literal})|(?<=\\u[0-9A-Fa-f]{{4}}{literal}))"
    )


def _assigned(needles: str, name: str, capitals: str, bare: str) -> Detector:
    """A secret that only the name before it gives away."""
    return Detector("assigned-secret", needles, name + _QUOTED, capitals + _QUOTED, bare + _BARE, reads_pairs=True)


# Credentials. The order counts: a detector further down never sees what one above has replaced.

_FRESH = r"(?!\[redacted:)"
# Between a name and its value in a configuration file, a header or a JSON text; quotes may be escaped.
_IS = r"""\\{0,4}["']?\s{0,4}[:=]\s{0,4}"""
_QUOTE = r"""\\{0,4}["']"""

_PEM_NAME = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_BODY = r"(?:[^-]++|-(?!----))*+"
# Without an end line (a text that was cut) only lines that look like a key go.
_PEM_LINES = r"(?:(?:\s|\\+[nr])*+[A-Za-z0-9+/=]{16,}+)++"

# Words with separators (`your-api-key`), numbers, variables, paths and addresses are what code says about secrets.
_GIVEN = (
    rf"{_FRESH}(?![$<{{*%(.]|https?:|urn:|/[a-z0-9]{{1,20}}/)"
    r"""(?=[A-Za-z_./:{}-]{0,64}[^A-Za-z_./:{}"'\s\\-])(?=[^A-Za-z"'\s]{0,64}[A-Za-z])"""
)
_QUOTED = rf"""[A-Za-z0-9_-]{{0,24}}{_IS}(?P<q>{_QUOTE})(?P<secret>{_GIVEN}[^\s"'\\]{{6,512}}+)(?P=q)"""
_BARE = rf"""[A-Z0-9_]{{0,24}}=(?P<secret>{_GIVEN}[^\s"'\\`;&|,]{{6,512}}+)"""
_BEGIN = rf"{_IS}(?:{_QUOTE})?"
_AWS = rf"{_BEGIN}(?P<secret>[A-Za-z0-9+/]{{40}})(?![A-Za-z0-9+/=])"
_SCHEME = rf"{_BEGIN}(?:[Bb]asic|[Tt]oken|[Aa]pi[Kk]ey)\s{{1,4}}(?P<secret>{_FRESH}[A-Za-z0-9._~+/=:-]{{6,}}+)"
_HEADER = rf":\s{{0,4}}(?P<secret>{_FRESH}[A-Za-z0-9._~+/=-]{{8,}}+)"
_BEARER = r"(?:\s{1,4}|%20|\+)(?P<secret>(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}+)"
_LOGIN = rf"""[^\s/@:"'<>\\]{{0,256}}:(?P<secret>{_FRESH}[^\s/"'<>`\\]{{1,512}})@"""


TOKENS, FORMATS, NAMED_FORMATS = map(_read_formats, ("tokens", "formats", "named_formats"))
SECRETS: tuple[Detector, ...] = (
    Detector("private-key", "private·key", rf"-----BEGIN {_PEM_NAME}(?:{_PEM_BODY}-----END {_PEM_NAME}|{_PEM_LINES})"),
    *NAMED_FORMATS,
    Detector(
        "aws-secret-key",
        "secret",
        rf"ecret_?(?:[Aa]ccess_?)?[Kk]ey{_AWS}",
        rf"SECRET_?(?:ACCESS_?)?KEY{_AWS}",
        reads_pairs=True,
    ),
    Detector("authorization", "authorization", rf"uthorization{_SCHEME}", rf"UTHORIZATION{_SCHEME}", reads_pairs=True),
    Detector("authorization", "api-key:", rf"pi-[Kk]ey{_HEADER}", rf"PI-KEY{_HEADER}"),
    Detector("bearer-token", "bearer", rf"earer{_BEARER}", rf"BEARER{_BEARER}"),
    Detector("url-password", r":// :\/\/", rf"://{_LOGIN}", rf":\\/\\/{_LOGIN}"),
    Detector(
        "url-secret",
        "key= token= secret= password= sig= signature=",
        r"[?&](?:api[_-]?key|apiKey|key|(?:access_|auth_|private_)?token|(?:client_)?secret|password|sig|signature"
        r"|X-Amz-Signature|X-Goog-Signature)=(?P<secret>[A-Za-z0-9._~%+/-]{8,}+)",
    ),
    _assigned("passw", "assw(?:or)?d", "PASSW(?:OR)?D", "PASSW(?:OR)?D"),
    _assigned("passphrase", "assphrase", "PASSPHRASE", "PASSPHRASE"),
    _assigned("secret", "ecret", "SECRET", "SECRET"),
    _assigned("token", "(?:ccess|uth)[_-]?[Tt]oken", "TOKEN", "TOKEN"),
    _assigned("api_key api-key apikey", "pi[_-]?[Kk]ey", "API[_-]?KEY", "API_?KEY"),
    Detector(
        "assigned-secret",
        "private_key privatekey access_key accesskey admin_key app_key master_key signing_key encryption_key role_key",
        rf"rivate_?[Kk]ey{_QUOTED}",
        rf"(?:PRIVATE|ACCESS)_?KEY{_BARE}",
        rf"(?:ADMIN|APP|MASTER|SIGNING|ENCRYPTION|ROLE)_KEY{_BARE}",
        rf"(?:dmin|pp|aster|igning|ncryption|ole)_key{_QUOTED}",
        reads_pairs=True,
    ),
)


def without_credentials(text: str, hits: Counter[str]) -> str:
    """The text without keys, tokens and passwords; adds to `hits`."""
    if len(text) < SHORTEST:
        return text
    seen = glance(text)
    if _TOKEN_RUN in seen.encode("ascii").translate(_TOKEN_TABLE):
        text = _search_around_words(search(text, seen, TOKENS, hits), hits)
    return search(text, seen, SECRETS, hits)


_LONG_WORD = re.compile(rf"{_FORMATS['macros']['safe']}{{{TOKEN_CHARS},}}+")
_LOOKS_RANDOM = re.compile(r"[0-9]|[a-z][A-Z].*?[a-z][A-Z].*?[a-z][A-Z]", re.DOTALL)
_REST = re.compile(r"""[^\s"'`]*+""")
_LOOKED_AT = 200
_BEFORE = 64  # characters before a word that a format may look at
_BETWEEN = "\0\0"


def _search_around_words(text: str, hits: Counter[str]) -> str:
    """Search for the many formats where a token may be: a hundred detectors over all of a text would be slow."""
    windows: list[tuple[int, int]] = []
    for word in _LONG_WORD.finditer(text):
        if (windows and word.end() <= windows[-1][1]) or not _LOOKS_RANDOM.search(word[0][:_LOOKED_AT]):
            continue
        start, end = max(0, word.start() - _BEFORE), _REST.match(text, word.end()).end()  # type: ignore[union-attr]
        if windows and start <= windows[-1][1]:
            start = windows.pop()[0]
        windows.append((start, end))
    if not windows:
        return text
    parts = [text[start:end] for start, end in windows]
    if "\0" in text:
        cleaned = [search(part, glance(part), FORMATS, hits) for part in parts]
    else:
        joined = _BETWEEN.join(parts)
        cleaned = search(joined, glance(joined), FORMATS, hits).split(_BETWEEN)
    if cleaned == parts:
        return text
    pieces, at = [], 0
    for (start, end), part in zip(windows, cleaned, strict=True):
        pieces += [text[at:start], part]
        at = end
    return "".join([*pieces, text[at:]])


def is_secret_beside(name: str, value: str) -> Detector | None:
    """The detector for which `{name: value}` is a secret, although neither text shows it alone."""
    if len(value) > LONGEST_VALUE or MARKED in value:
        return None
    seen = glance(name)
    for detector in SECRETS:
        is_telling = detector.reads_pairs and any(needle in seen for needle in detector.needles)
        if is_telling and detector(f'{name}="{value}"')[1]:
            return detector
    return None


# Personal data: opt-in, because a transcript without its numbers and addresses is often of no use.


def _passes_luhn(number: str) -> bool:
    """The check digit that every payment card carries."""
    values = [int(char) for char in number if char.isdigit()]
    doubled = [value * 2 - 9 if value > 4 else value * 2 for value in values[-2::-2]]
    return (sum(values[-1::-2]) + sum(doubled)) % 10 == 0


def _has_chinese_check_digit(number: str) -> bool:
    """GB 11643: the weighted sum of the first 17 digits, modulo 11, gives the last character."""
    total = sum(int(digit) * (2 ** (17 - place) % 11) for place, digit in enumerate(number[:17]))
    return "10X98765432"[total % 11] == number[17].upper()


_NO_DIGIT_BEFORE = r"(?:(?<![A-Za-z0-9.])|(?<=\\[nrtbf]))"
_NO_DIGIT_AFTER = r"(?![A-Za-z0-9])"
_DIGITS = " ".join(digits)

PERSONAL: tuple[Detector, ...] = (
    Detector(
        "email",
        "@",
        r"(?:(?<![A-Za-z0-9._%+\\-])|(?<=\\[nrtbf]))(?!git@)[A-Za-z0-9._%+-]{1,64}@"
        r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])",
    ),
    Detector(
        "chinese-id",
        _DIGITS,
        rf"{_NO_DIGIT_BEFORE}[1-9][0-9]{{5}}(?:18|19|20)[0-9]{{2}}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
        rf"[0-9]{{3}}[0-9Xx]{_NO_DIGIT_AFTER}",
        confirm=_has_chinese_check_digit,
    ),
    Detector(
        "card",
        _DIGITS,
        rf"{_NO_DIGIT_BEFORE}(?:[2-6][0-9]{{3}}(?P<gap>[ -])[0-9]{{4}}(?P=gap)[0-9]{{4}}(?P=gap)[0-9]{{4}}"
        rf"|3[47][0-9]{{2}}(?P<space>[ -])[0-9]{{6}}(?P=space)[0-9]{{5}}|[2-6][0-9]{{12,18}}){_NO_DIGIT_AFTER}",
        confirm=_passes_luhn,
    ),
    Detector(
        "phone",
        _DIGITS,
        r"(?:(?:(?<![A-Za-z0-9+])|(?<=\\[nrtbf]))\+[1-9](?:[ ().-]{0,2}[0-9]){7,14}|"
        rf"{_NO_DIGIT_BEFORE}(?:(?:0086|86)[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{{4}}){{2}}|"
        rf"{_NO_DIGIT_BEFORE}(?:1[ .-])?(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}[ .-])[2-9][0-9]{{2}}[ .-][0-9]{{4}})"
        rf"{_NO_DIGIT_AFTER}",
    ),
)


def personal(names: Iterable[str]) -> tuple[Detector, ...]:
    """The named detectors for personal data, in the order in which they must run."""
    wanted = set(names)
    known = {detector.name for detector in PERSONAL}
    if unknown := sorted(wanted - known):
        raise ValueError(f"Unknown detector {', '.join(unknown)}: choose from {', '.join(sorted(known))}.")
    return tuple(detector for detector in PERSONAL if detector.name in wanted)
