r"""Detectors of credentials and personal numbers, in linear time, without Django.

Most texts hold no secret, so the text is glanced at first: does it have a run of characters that could be a token, does
a needle of this detector occur in it at all? Only then a pattern is searched. Patterns begin with a literal (a fast
search) and look back from there to see where the token begins; every repetition is bounded or possessive, so no text
can make one of them slow. A secret behind an escape (`\nsk-…` in JSON inside a text, `%3Dsk-…` in a URL) begins there
too: that is what `starts` is for. The formats of most vendors are in `token_formats`.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from string import ascii_letters, digits

from history.redaction.token_formats import NAMED_FORMATS, SAFE, TOKEN_FORMATS, TokenFormat, starts

# No token of a vendor is shorter; few words of prose are longer.
TOKEN_CHARS = 16
# `://:x@` is the shortest thing that any detector finds.
SHORTEST = 6
# No secret that only its name gives away is longer.
LONGEST_VALUE = 4096
MARKED = "[redacted:"
_TOKEN_RUN = b"a" * TOKEN_CHARS
_TOKEN_TABLE = bytes(ord("a") if chr(code) in f"{ascii_letters}{digits}_-" else ord(" ") for code in range(256))


def placeholder(name: str) -> str:
    return f"{MARKED}{name}]"


def glance(text: str) -> str:
    """The text in lower-case ASCII, other characters as `?`: enough to see at once what cannot be in it."""
    ascii_only = text if text.isascii() else text.encode("ascii", "replace").decode("ascii")
    return ascii_only.lower()


def _could_hold_a_token(seen: str) -> bool:
    return len(seen) >= TOKEN_CHARS and seen.encode("ascii").translate(_TOKEN_TABLE).find(_TOKEN_RUN) >= 0


def _always(secret: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Replaces what its patterns find (their group `secret`, or all of it) where `confirm` agrees."""

    name: str
    # In lower case; without one of them in the text no pattern can match.
    needles: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    # Also asked about `name="value"` of a JSON object, where name and value are two texts.
    reads_pairs: bool = False
    confirm: Callable[[str], bool] = _always
    mark: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mark", placeholder(self.name))

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
        if not self.confirm(secret):
            return whole
        hits[self.name] += 1
        start = match.start(group) - match.start()
        return f"{whole[:start]}{self.mark}{whole[start + len(secret) :]}"


def search(text: str, seen: str, detectors: Iterable[Detector], hits: Counter[str]) -> str:
    """The text after all detectors; `seen` stays good on the way, because a placeholder adds no needle."""
    for detector in detectors:
        for needle in detector.needles:
            if needle in seen:
                text = detector.replace(text, hits)
                break
    return text


def _detector(name: str, needles: str, *patterns: str, reads_pairs: bool = False) -> Detector:
    compiled = tuple(re.compile(pattern) for pattern in patterns)
    return Detector(
        name=name,
        needles=tuple(needle.replace("·", " ") for needle in needles.split()),
        patterns=compiled,
        reads_pairs=reads_pairs,
    )


# Credentials. The order counts: a detector further down never sees what one above has replaced.

_SAFE = SAFE
# A random token holds a digit early on; a hyphenated word does not.
_A_DIGIT_SOON = "(?=[A-Za-z_-]{0,60}[0-9])"
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
_AWS = rf"{_IS}(?:{_QUOTE})?(?P<secret>[A-Za-z0-9+/]{{40}})(?![A-Za-z0-9+/=])"
_SCHEME = (
    rf"{_IS}(?:{_QUOTE})?(?:[Bb]asic|[Tt]oken|[Aa]pi[Kk]ey)\s{{1,4}}(?P<secret>{_FRESH}[A-Za-z0-9._~+/=:-]{{6,}}+)"
)
_HEADER = rf":\s{{0,4}}(?P<secret>{_FRESH}[A-Za-z0-9._~+/=-]{{8,}}+)"
_BEARER = r"(?:\s{1,4}|%20|\+)(?P<secret>(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}+)"
_LOGIN = rf"""[^\s/@:"'<>\\]{{0,256}}:(?P<secret>{_FRESH}[^\s/"'<>`\\]{{1,512}})@"""


def _of_formats(formats: Iterable[TokenFormat]) -> tuple[Detector, ...]:
    return tuple(_detector(one.name, one.needles, *one.patterns) for one in formats)


# Each match holds at least TOKEN_CHARS letters, digits, hyphens or underscores in a row.
TOKENS: tuple[Detector, ...] = (
    _detector("parley-key", "parley_", r"parley_[a-z0-9]{4,16}_[A-Za-z0-9]{32,}+"),
    _detector("anthropic-key", "sk-ant-", rf"sk-ant-{_SAFE}{{20,}}+"),
    _detector("openrouter-key", "sk-or-", rf"sk-or-{_SAFE}{{20,}}+"),
    # Not OpenSSH's names of key types, such as sk-ssh-ed25519-cert-v01.
    _detector("openai-key", "sk-", starts("sk-") + rf"(?!ssh-|ecdsa-){_A_DIGIT_SOON}{_SAFE}{{20,}}+"),
    _detector("google-key", "aiza", starts("AIza", "A-Za-z0-9+/") + rf"{_SAFE}{{35,}}+"),
    _detector("google-oauth", "ya29. gocspx-", rf"ya29\.{_SAFE}{{20,}}+", rf"GOCSPX-{_SAFE}{{20,}}+"),
    _detector(
        "github-token",
        "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
        r"gh[pousr]_[A-Za-z0-9]{30,}+",
        r"github_pat_[A-Za-z0-9_]{40,}+",
    ),
    _detector(
        "gitlab-token", "glpat- gldt- glrt- glptt- glcbt-", rf"gl(?:pat|dt|rt|ptt|cbt)-{_SAFE}{{20,}}+(?:\.{_SAFE}++)*+"
    ),
    _detector(
        "aws-access-key",
        "akia asia",
        starts("AKIA") + "[A-Z2-7]{16}(?![A-Za-z0-9])",
        starts("ASIA") + "[A-Z2-7]{16}(?![A-Za-z0-9])",
    ),
    _detector("slack-token", "xox xapp-", r"xox[abceoprs]-[A-Za-z0-9-]{12,}+", r"xapp-[A-Za-z0-9-]{12,}+"),
    _detector(
        "slack-webhook",
        "hooks.slack.com",
        rf"hooks\.slack\.com\\?/(?:services|workflows|triggers)(?P<secret>(?:\\?/{_SAFE}{{8,}}+){{2,6}})",
    ),
    _detector(
        "stripe-key", "k_live_ k_test_ whsec_", r"[srp]k_(?:live|test)_[A-Za-z0-9]{16,}+", r"whsec_[A-Za-z0-9+/=]{24,}+"
    ),
    _detector("huggingface-token", "hf_", starts("hf_") + r"[A-Za-z0-9]{30,}+"),
    _detector("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{32,}+"),
    _detector("xai-key", "xai-", starts("xai-") + r"[A-Za-z0-9]{40,}+"),
    _detector("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{32,}+"),
    _detector("replicate-token", "r8_", starts("r8_") + r"[A-Za-z0-9]{30,}+"),
    _detector("npm-token", "npm_", r"npm_[A-Za-z0-9]{36,}+"),
    _detector("pypi-token", "pypi-", rf"pypi-{_SAFE}{{32,}}+"),
    _detector("sendgrid-key", "sg.", starts(r"SG\.") + rf"{_SAFE}{{16,64}}+\.{_SAFE}{{32,}}+"),
    _detector("digitalocean-token", "_v1_", r"do[por]_v1_[a-f0-9]{64}"),
    _detector(
        "jwt",
        "eyj",
        starts("eyJ", "A-Za-z0-9_-") + rf"{_SAFE}{{13,}}+\.{_SAFE}*+\.{_SAFE}{{4,}}+(?:\.{_SAFE}++){{0,2}}+",
    ),
)

# Searched only around long words that hold a digit or change their case again and again.
FORMATS = _of_formats(TOKEN_FORMATS)

SECRETS: tuple[Detector, ...] = (
    _detector("private-key", "private·key", rf"-----BEGIN {_PEM_NAME}(?:{_PEM_BODY}-----END {_PEM_NAME}|{_PEM_LINES})"),
    *_of_formats(NAMED_FORMATS),
    _detector(
        "aws-secret-key",
        "secret",
        rf"ecret_?(?:[Aa]ccess_?)?[Kk]ey{_AWS}",
        rf"SECRET_?(?:ACCESS_?)?KEY{_AWS}",
        reads_pairs=True,
    ),
    _detector("authorization", "authorization", rf"uthorization{_SCHEME}", rf"UTHORIZATION{_SCHEME}", reads_pairs=True),
    _detector("authorization", "api-key:", rf"pi-[Kk]ey{_HEADER}", rf"PI-KEY{_HEADER}"),
    _detector("bearer-token", "bearer", rf"earer{_BEARER}", rf"BEARER{_BEARER}"),
    _detector("url-password", r":// :\/\/", rf"://{_LOGIN}", rf":\\/\\/{_LOGIN}"),
    _detector(
        "url-secret",
        "key= token= secret= password= sig= signature=",
        r"[?&](?:api[_-]?key|apiKey|key|(?:access_|auth_|private_)?token|(?:client_)?secret|password|sig|signature"
        r"|X-Amz-Signature|X-Goog-Signature)=(?P<secret>[A-Za-z0-9._~%+/-]{8,}+)",
    ),
    _detector(
        "assigned-secret",
        "passw",
        rf"assw(?:or)?d{_QUOTED}",
        rf"PASSW(?:OR)?D{_QUOTED}",
        rf"PASSW(?:OR)?D{_BARE}",
        reads_pairs=True,
    ),
    _detector(
        "assigned-secret",
        "passphrase",
        rf"assphrase{_QUOTED}",
        rf"PASSPHRASE{_QUOTED}",
        rf"PASSPHRASE{_BARE}",
        reads_pairs=True,
    ),
    _detector(
        "assigned-secret", "secret", rf"ecret{_QUOTED}", rf"SECRET{_QUOTED}", rf"SECRET{_BARE}", reads_pairs=True
    ),
    _detector(
        "assigned-secret",
        "token",
        rf"(?:ccess|uth)[_-]?[Tt]oken{_QUOTED}",
        rf"TOKEN{_QUOTED}",
        rf"TOKEN{_BARE}",
        reads_pairs=True,
    ),
    _detector(
        "assigned-secret",
        "api_key api-key apikey",
        rf"pi[_-]?[Kk]ey{_QUOTED}",
        rf"API[_-]?KEY{_QUOTED}",
        rf"API_?KEY{_BARE}",
        reads_pairs=True,
    ),
    _detector(
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
    if _could_hold_a_token(seen):
        text = _search_around_words(search(text, seen, TOKENS, hits), hits)
    return search(text, seen, SECRETS, hits)


_LONG_WORD = re.compile(rf"{_SAFE}{{{TOKEN_CHARS},}}+")
_LOOKS_RANDOM = re.compile(r"[0-9]|[a-z][A-Z].*?[a-z][A-Z].*?[a-z][A-Z]", re.DOTALL)
_REST = re.compile(r"""[^\s"'`]*+""")
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


_LOOKED_AT = 200


def is_secret_beside(name: str, value: str) -> Detector | None:
    """The detector for which `{name: value}` is a secret, although neither text shows it alone.

    Where something was taken out of the value already, what is left is no secret any more.
    """
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
_DIGITS = tuple(digits)

PERSONAL: tuple[Detector, ...] = (
    Detector(
        name="email",
        needles=("@",),
        patterns=(
            re.compile(
                r"(?:(?<![A-Za-z0-9._%+\\-])|(?<=\\[nrtbf]))(?!git@)[A-Za-z0-9._%+-]{1,64}@"
                r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"
            ),
        ),
    ),
    Detector(
        name="chinese-id",
        needles=_DIGITS,
        patterns=(
            re.compile(
                _NO_DIGIT_BEFORE + r"[1-9][0-9]{5}(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
                r"[0-9]{3}[0-9Xx]" + _NO_DIGIT_AFTER
            ),
        ),
        confirm=_has_chinese_check_digit,
    ),
    Detector(
        name="card",
        needles=_DIGITS,
        patterns=(
            re.compile(
                _NO_DIGIT_BEFORE + r"(?:[2-6][0-9]{3}(?P<gap>[ -])[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{4}"
                r"|3[47][0-9]{2}(?P<space>[ -])[0-9]{6}(?P=space)[0-9]{5}|[2-6][0-9]{12,18})" + _NO_DIGIT_AFTER
            ),
        ),
        confirm=_passes_luhn,
    ),
    Detector(
        name="phone",
        needles=_DIGITS,
        patterns=(
            re.compile(
                r"(?:(?:(?<![A-Za-z0-9+])|(?<=\\[nrtbf]))\+[1-9](?:[ ().-]{0,2}[0-9]){7,14}|"
                + _NO_DIGIT_BEFORE
                + r"(?:(?:0086|86)[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{4}){2}|"
                + _NO_DIGIT_BEFORE
                + r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4})"
                + _NO_DIGIT_AFTER
            ),
        ),
    ),
)


def personal(names: Iterable[str]) -> tuple[Detector, ...]:
    """The named detectors for personal data, in the order in which they must run."""
    wanted = set(names)
    known = {detector.name for detector in PERSONAL}
    if unknown := sorted(wanted - known):
        raise ValueError(f"No detector is called {', '.join(unknown)}: choose from {', '.join(sorted(known))}.")
    return tuple(detector for detector in PERSONAL if detector.name in wanted)
