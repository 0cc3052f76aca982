"""Result types of the linter: rules, findings, verdicts and report."""

from dataclasses import dataclass, field
from enum import StrEnum

from history.entries import JsonDict, JsonObject, empty_object


class LintSeverity(StrEnum):
    """Severities: refused; taken with losses; taken by some vendors only, or carried in another form."""

    REJECTED = "rejected"
    UNPORTABLE = "unportable"
    ODD = "odd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of one vendor. `answer` is the error that the vendor returns, if known."""

    id: str
    severity: LintSeverity
    words: str
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintFinding:
    """A broken rule. `place` is a path into the given JSON, or an entry of a session; `about` fills in the words."""

    rule: Rule
    place: str = ""
    about: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> str:
        return self.rule.words % dict(self.about)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that was done so that the vendor takes it: a stable code, a sentence to be filled in, the place."""

    code: str
    sentence: str
    place: str = ""
    values: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> str:
        return self.sentence % dict(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one vendor makes of the conversation. `repaired` is a request that it takes; None: nothing is left."""

    dialect: str
    is_native: bool
    findings: tuple[LintFinding, ...]
    repaired: JsonDict | None
    repairs: tuple[Repair, ...]

    @property
    def is_rejected(self) -> bool:
        return any(finding.rule.severity is LintSeverity.REJECTED for finding in self.findings)

    @property
    def outcome(self) -> str:
        """The worst severity of the findings, or "taken"."""
        severities = {finding.rule.severity for finding in self.findings}
        return next((severity.value for severity in LintSeverity if severity in severities), "taken")


@dataclass(frozen=True, slots=True, kw_only=True)
class LintReport:
    """`language` is the dialect in which the conversation was given; empty: the record's own."""

    language: str
    verdicts: tuple[Verdict, ...]

    @property
    def is_rejected(self) -> bool:
        return any(verdict.is_rejected for verdict in self.verdicts)
