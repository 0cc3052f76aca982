r"""What a credential looks like, and which digits are a person's: patterns that run in linear time, no Django.

A detector is asked only where one of its needles occurs in the text, because `needle in text` costs next to nothing
and most texts hold no secret at all. Patterns begin with a literal (a fast search) and look back from there to see
where the token begins; every repetition is bounded or possessive, so no text can make one of them slow. A secret behind
an escape (`\nsk-…` in JSON inside a text, `%3Dsk-…` in a URL) begins there too, and for that `_starts` exists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field


def placeholder(name: str) -> str:
    return f"[redacted:{name}]"


def _always(secret: str) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Replaces what `pattern` finds (its group `secret`, or all of it) where `confirm` agrees."""

    name: str
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    confirm: Callable[[str], bool] = _always
    # Also asked about `name="value"` of a JSON object, where name and value are two texts.
    reads_pairs: bool = False
    mark: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mark", placeholder(self.name))

    def __call__(self, text: str) -> tuple[str, Counter[str]]:
        hits: Counter[str] = Counter()
        return self.replace(text, hits), hits

    def replace(self, text: str, hits: Counter[str]) -> str:
        """The text without its secrets; adds to `hits`."""
        for needle in self.needles:
            if needle in text:
                return self.pattern.sub(lambda match: self._mark(match, hits), text)
        return text

    def finds_pair(self, name: str, value: str) -> bool:
        """Whether `value` is a secret because of the name it stands under."""
        pair = f'{name}="{value}"'
        return self.replace(pair, Counter()) != pair

    def _mark(self, match: re.Match[str], hits: Counter[str]) -> str:
        group = "secret" if "secret" in self.pattern.groupindex else 0
        secret, whole = match[group], match[0]
        if not self.confirm(secret):
            return whole
        hits[self.name] += 1
        start = match.start(group) - match.start()
        return f"{whole[:start]}{self.mark}{whole[start + len(secret) :]}"


def _starts(literal: str, before: str = "A-Za-z0-9") -> str:
    """The literal, where no character of `before` precedes it, or an escape sequence does."""
    return (
        rf"{literal}(?:(?<![{before}]{literal})|(?<=\\[nrtbf]{literal})"
        rf"|(?<=%[0-9A-Fa-f]{{2}}{literal})|(?<=\\u[0-9A-Fa-f]{{4}}{literal}))"
    )


def _detector(name: str, needles: str, pattern: str, *, flags: int = 0, reads_pairs: bool = False) -> Detector:
    return Detector(
        name=name, needles=tuple(needles.split()), pattern=re.compile(pattern, flags), reads_pairs=reads_pairs
    )


# Credentials. The order counts: a detector further down never sees what one above has replaced.

_URL_SAFE = "[A-Za-z0-9_-]"
# A random token holds a digit early on; a hyphenated word does not.
_A_DIGIT_SOON = "(?=[A-Za-z_-]{0,60}[0-9])"
_NOT_A_PLACEHOLDER = r"(?!\[redacted:)"
# Where a value of a configuration file, a header or a JSON text begins; quotes may be escaped.
_ASSIGN = r"""\\{0,4}["']?\s{0,4}[:=]\s{0,4}"""
_QUOTE = r"""\\{0,4}["']"""

_PEM_NAME = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_PEM_BODY = r"(?:[^-]++|-(?!----))*+"
# Without an end line (a text that was cut) only lines that look like a key go.
_PEM_LINES = r"(?:(?:\s|\\+[nr])*+[A-Za-z0-9+/=]{16,}+)++"

_TELLING_NAME = (
    r"(?:[Pp]assw(?:or)?d|PASSW(?:OR)?D|[Pp]assphrase|PASSPHRASE|[Ss]ecret|SECRET|[Aa]pi[_-]?[Kk]ey|API[_-]?KEY"
    r"|[Aa]ccess[_-]?[Tt]oken|ACCESS_TOKEN|[Aa]uth[_-]?[Tt]oken|AUTH_TOKEN|[Pp]rivate[_-]?[Kk]ey|PRIVATE_KEY)"
    r"[A-Za-z0-9_-]{0,24}"
)
# Neither a word alone nor a number alone, nor a reference to a variable.
_GIVEN = rf"""{_NOT_A_PLACEHOLDER}(?![$<{{*%(])(?=[A-Za-z]{{0,64}}[^A-Za-z"'\s\\])(?=[^A-Za-z"'\s]{{0,64}}[A-Za-z])"""
_VARIABLE = r"(?:PASSW(?:OR)?D|PASSPHRASE|SECRET|API_?KEY|ACCESS_?KEY|TOKEN|PRIVATE_KEY)[A-Z0-9_]{0,24}"

CREDENTIALS: tuple[Detector, ...] = (
    _detector("private-key", "PRIVATE",
              rf"-----BEGIN {_PEM_NAME}(?:{_PEM_BODY}-----END {_PEM_NAME}|{_PEM_LINES})"),
    _detector("parley-key", "parley_", r"parley_[a-z0-9]{4,16}_[A-Za-z0-9]{32,}+"),
    _detector("anthropic-key", "sk-ant-", rf"sk-ant-{_URL_SAFE}{{20,}}+"),
    _detector("openrouter-key", "sk-or-", rf"sk-or-{_URL_SAFE}{{20,}}+"),
    _detector("openai-key", "sk-", _starts("sk-") + rf"{_A_DIGIT_SOON}{_URL_SAFE}{{20,}}+"),
    _detector("google-key", "AIza", _starts("AIza", "A-Za-z0-9+/") + rf"{_URL_SAFE}{{35,}}+"),
    _detector("google-oauth", "ya29. GOCSPX-", rf"(?:ya29\.|GOCSPX-){_URL_SAFE}{{20,}}+"),
    _detector("github-token", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
              r"(?:gh[pousr]_[A-Za-z0-9]{30,}+|github_pat_[A-Za-z0-9_]{40,}+)"),
    _detector("gitlab-token", "glpat- gldt- glrt- glptt- glcbt-",
              r"gl(?:pat|dt|rt|ptt|cbt)-[A-Za-z0-9_.-]{20,}+"),
    _detector("aws-access-key", "AKIA ASIA",
              "(?:" + _starts("AKIA") + "|" + _starts("ASIA") + ")[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _detector("aws-secret-key", "ecret ECRET",
              rf"(?:[Ss]ecret_?[Aa]ccess_?[Kk]ey|SECRET_?ACCESS_?KEY|[Ss]ecret_?[Kk]ey|SECRET_?KEY){_ASSIGN}(?:{_QUOTE})?"
              r"(?P<secret>[A-Za-z0-9+/]{40})(?![A-Za-z0-9+/=])", reads_pairs=True),
    _detector("slack-token", "xox xapp-", r"(?:xox[abceoprs]|xapp)-(?:[A-Za-z0-9]{1,12}-){0,5}[A-Za-z0-9-]{10,}+"),
    _detector("slack-webhook", "hooks.slack.com",
              r"hooks\.slack\.com\\?/(?:services|workflows|triggers)\\?/(?P<secret>[A-Za-z0-9/\\_-]{20,}+)"),
    _detector("stripe-key", "k_live_ k_test_ whsec_",
              r"(?:[srp]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9+/=]{24,}+)"),
    _detector("huggingface-token", "hf_", _starts("hf_") + r"[A-Za-z0-9]{30,}+"),
    _detector("groq-key", "gsk_", r"gsk_[A-Za-z0-9]{32,}+"),
    _detector("xai-key", "xai-", _starts("xai-") + r"[A-Za-z0-9]{40,}+"),
    _detector("perplexity-key", "pplx-", r"pplx-[A-Za-z0-9]{32,}+"),
    _detector("replicate-token", "r8_", _starts("r8_") + r"[A-Za-z0-9]{30,}+"),
    _detector("npm-token", "npm_", r"npm_[A-Za-z0-9]{36,}+"),
    _detector("pypi-token", "pypi-", rf"pypi-{_URL_SAFE}{{32,}}+"),
    _detector("sendgrid-key", "SG.", _starts(r"SG\.") + rf"{_URL_SAFE}{{16,64}}+\.{_URL_SAFE}{{32,}}+"),
    _detector("digitalocean-token", "_v1_", r"do[por]_v1_[a-f0-9]{64}"),
    _detector("jwt", "eyJ", _starts("eyJ", "A-Za-z0-9_-") +
              rf"{_URL_SAFE}{{8,}}+\.{_URL_SAFE}*+\.{_URL_SAFE}{{4,}}+(?:\.{_URL_SAFE}++){{0,2}}+"),
    _detector("authorization", "uthorization UTHORIZATION",
              rf"(?:[Aa]uthorization|AUTHORIZATION){_ASSIGN}(?:{_QUOTE})?(?:[Bb]asic|[Tt]oken|[Aa]pi[Kk]ey)\s{{1,4}}"
              rf"(?P<secret>{_NOT_A_PLACEHOLDER}[A-Za-z0-9._~+/=:-]{{6,}}+)", reads_pairs=True),
    _detector("authorization", "pi-key: pi-Key: PI-KEY:",
              rf"(?:[Xx]-(?:[Gg]oog-)?[Aa]pi-[Kk]ey|X-API-KEY|[Aa]pi-[Kk]ey):\s{{0,4}}"
              rf"(?P<secret>{_NOT_A_PLACEHOLDER}(?![$<{{*%])[A-Za-z0-9._~+/=-]{{8,}}+)"),
    _detector("bearer-token", "earer EARER", r"(?:[Bb]earer|BEARER)(?:\s{1,4}|%20|\+)"
              r"(?P<secret>(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}+)"),
    _detector("url-password", ":// :\\/\\/",
              r""":(?:\\?/){2}[^\s/@:"'<>\\]{0,256}:(?P<secret>"""
              + _NOT_A_PLACEHOLDER + r"""[^\s/"'<>`\\]{1,512})@"""),
    _detector("url-secret", "ey= oken= ecret= assword= ig= ignature=",
              r"[?&](?:api[_-]?key|apiKey|key|(?:access_|auth_|private_)?token|(?:client_)?secret|password|sig|signature"
              r"|X-Amz-Signature|X-Goog-Signature)=(?P<secret>[A-Za-z0-9._~%+/-]{8,}+)"),
    _detector("assigned-secret",
              "assw ASSW assph ASSPH ecret ECRET pi_ pi- piK pik PI_ PI- PIK oken TOKEN ivate RIVATE_K",
              rf"{_TELLING_NAME}{_ASSIGN}(?P<q>{_QUOTE})(?P<secret>{_GIVEN}[^\s\"'\\]{{6,512}}+)(?P=q)",
              reads_pairs=True),
    _detector("assigned-secret", "ASSW ASSPH ECRET KEY TOKEN",
              rf"{_VARIABLE}=(?P<secret>{_GIVEN}[^\s\"'\\`;&|,]{{6,512}}+)"),
)  # fmt: skip


# Personal data: opt-in, because a transcript without its numbers and addresses is often of no use.


def _passes_luhn(number: str) -> bool:
    """The check digit that every payment card carries."""
    digits = [int(char) for char in number if char.isdigit()]
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _has_chinese_check_digit(number: str) -> bool:
    """GB 11643: the weighted sum of the first 17 digits, modulo 11, gives the last character."""
    total = sum(int(digit) * (2 ** (17 - place) % 11) for place, digit in enumerate(number[:17]))
    return "10X98765432"[total % 11] == number[17].upper()


_NO_DIGIT_BEFORE = r"(?:(?<![A-Za-z0-9.])|(?<=\\[nrtbf]))"
_NO_DIGIT_AFTER = r"(?![A-Za-z0-9])"
_DIGITS = tuple("0123456789")

PERSONAL: tuple[Detector, ...] = (
    Detector(
        name="email",
        needles=("@",),
        pattern=re.compile(
            r"(?:(?<![A-Za-z0-9._%+\\-])|(?<=\\[nrtbf]))(?!git@)[A-Za-z0-9._%+-]{1,64}@"
            r"(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z0-9])"
        ),
    ),
    Detector(
        name="chinese-id",
        needles=_DIGITS,
        pattern=re.compile(
            _NO_DIGIT_BEFORE + r"[1-9][0-9]{5}(?:18|19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
            r"[0-9]{3}[0-9Xx]" + _NO_DIGIT_AFTER
        ),
        confirm=_has_chinese_check_digit,
    ),
    Detector(
        name="card",
        needles=_DIGITS,
        pattern=re.compile(
            _NO_DIGIT_BEFORE + r"(?:[2-6][0-9]{3}(?P<gap>[ -])[0-9]{4}(?P=gap)[0-9]{4}(?P=gap)[0-9]{4}"
            r"|3[47][0-9]{2}(?P<space>[ -])[0-9]{6}(?P=space)[0-9]{5}|[2-6][0-9]{12,18})" + _NO_DIGIT_AFTER
        ),
        confirm=_passes_luhn,
    ),
    Detector(
        name="phone",
        needles=_DIGITS,
        pattern=re.compile(
            r"(?:(?<![A-Za-z0-9+])\+[1-9](?:[ ().-]{0,2}[0-9]){7,14}|"
            + _NO_DIGIT_BEFORE
            + r"(?:(?:0086|86)[ -]?)?1[3-9][0-9](?:[ -]?[0-9]{4}){2}|"
            + _NO_DIGIT_BEFORE
            + r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[2-9][0-9]{2}[ .-][0-9]{4})"
            + _NO_DIGIT_AFTER
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
