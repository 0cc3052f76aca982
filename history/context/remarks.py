"""Remarks on a rendered context: repairs, limits and omissions, each with a stable code. docs/context.md lists them."""

from dataclasses import dataclass, field
from enum import auto

from history.entries import JsonObject, empty_object
from history.text.lazy import LazyText, SentenceCode
from history.text.lazy import gettext_noop as _


class RemarkCode(SentenceCode):
    EMPTY_TEXT_DROPPED = auto(), _("An empty text was left out.")
    EMPTY_MESSAGE_LEFT_OUT = auto(), _("An empty message was left out.")
    MISPLACED_CALL_REMOVED = auto(), _("The call of %(name)s was left out. Only models call tools.")
    RESULT_SUPPLIED = auto(), _("The call of %(name)s has no result. One with status %(status)s was added.")
    ORPHAN_RESULT_REMOVED = auto(), _("A result of %(name)s was left out. It belongs to no earlier call.")
    DUPLICATE_RESULT_REMOVED = auto(), _("A second result for the same call of %(name)s was left out.")
    RESULTS_MOVED = auto(), _("Results were moved directly after their calls.")
    RESULTS_MERGED = auto(), _("The results of one answer were merged into one message.")
    RESULTS_REORDERED = auto(), _("Results were sorted by their calls.")
    RESULT_NAME_CORRECTED = auto(), _("A result named %(given)s belongs to a call of %(name)s and was renamed.")
    CALL_ID_SUPPLIED = auto(), _("The call of %(name)s had no id. It is now %(call_id)s.")
    CALL_ID_MADE_UNIQUE = auto(), _("The call id %(given)s was used twice. One is now %(call_id)s.")
    OPENING_SUPPLIED = auto(), _("The conversation began with an answer. An opening message was added.")
    # Not repairs: what rendering left out.
    FAILED_ANSWER_LEFT_OUT = auto(), _("A failed answer without text was left out.")
    INVALID_ANSWERS_LEFT_OUT = auto(), _("%(count)s consecutive answers were left out because one of them is empty.")
    LIVE_SCREEN_LEFT_OUT = auto(), _("There was no message to attach the live screen to.")
    LIMIT_TURNS = auto(), _("Only the newest %(limit)s turns are used.")
    LIMIT_MESSAGES = auto(), _("Older turns were left out. They have more than %(limit)s messages.")
    LIMIT_TOKENS = auto(), _("Older turns were left out. They have more than %(limit)s tokens.")
    TURN_CUT = auto(), _("The newest turn has more than %(limit)s messages. Its middle was left out.")
    OVER_MESSAGES = auto(), _("The required part has more than %(limit)s messages. It was kept.")
    OVER_TOKENS = auto(), _("The newest turn alone has more than %(limit)s tokens. It was kept whole.")


@dataclass(frozen=True, slots=True)
class Remark:
    """A code with the values of its sentence; ``seq`` is the entry concerned, 0 means none in particular."""

    code: SentenceCode
    seq: int = 0
    values: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> LazyText:
        return LazyText(self.code.sentence, **self.values)


@dataclass(frozen=True, slots=True)
class RepairReport:
    remarks: tuple[Remark, ...] = ()

    @property
    def codes(self) -> tuple[SentenceCode, ...]:
        return tuple(remark.code for remark in self.remarks)
