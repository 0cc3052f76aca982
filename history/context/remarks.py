"""Remarks on a rendered context: repairs, limits and omissions, each with a stable code. docs/context.md lists them."""

from dataclasses import dataclass, field

from history.entries import JsonObject, empty_object
from history.text.lazy import SentenceCode
from history.text.lazy import gettext_noop as _


class RemarkCode(SentenceCode):
    EMPTY_TEXT_DROPPED = "empty_text_dropped", _("An empty text was left out.")
    EMPTY_MESSAGE_LEFT_OUT = "empty_message_left_out", _("An empty message was left out.")
    MISPLACED_CALL_REMOVED = ("misplaced_call_removed", _("The call of %(name)s was left out. Only models call tools."))
    RESULT_SUPPLIED = "result_supplied", _("The call of %(name)s has no result. One with status %(status)s was added.")
    ORPHAN_RESULT_REMOVED = (
        "orphan_result_removed",
        _("A result of %(name)s was left out. It belongs to no earlier call."),
    )
    DUPLICATE_RESULT_REMOVED = (
        "duplicate_result_removed",
        _("A second result for the same call of %(name)s was left out."),
    )
    RESULTS_MOVED = "results_moved", _("Results were moved directly after their calls.")
    RESULTS_MERGED = "results_merged", _("The results of one answer were merged into one message.")
    RESULTS_REORDERED = "results_reordered", _("Results were sorted by their calls.")
    RESULT_NAME_CORRECTED = (
        "result_name_corrected",
        _("A result named %(given)s belongs to a call of %(name)s and was renamed."),
    )
    CALL_ID_SUPPLIED = "call_id_supplied", _("The call of %(name)s had no id. It is now %(call_id)s.")
    CALL_ID_MADE_UNIQUE = "call_id_made_unique", _("The call id %(given)s was used twice. One is now %(call_id)s.")
    OPENING_SUPPLIED = ("opening_supplied", _("The conversation began with an answer. An opening message was added."))
    # Not repairs: what rendering left out.
    FAILED_ANSWER_LEFT_OUT = "failed_answer_left_out", _("A failed answer without text was left out.")
    INVALID_ANSWERS_LEFT_OUT = (
        "invalid_answers_left_out",
        _("%(count)s consecutive answers were left out because one of them is empty."),
    )
    LIVE_SCREEN_LEFT_OUT = "live_screen_left_out", _("There was no message to attach the live screen to.")
    LIMIT_TURNS = "limit_turns", _("Only the newest %(limit)s turns are used.")
    LIMIT_MESSAGES = "limit_messages", _("Older turns were left out. They have more than %(limit)s messages.")
    LIMIT_TOKENS = "limit_tokens", _("Older turns were left out. They have more than %(limit)s tokens.")
    TURN_CUT = "turn_cut", _("The newest turn has more than %(limit)s messages. Its middle was left out.")
    OVER_MESSAGES = "over_messages", _("The required part has more than %(limit)s messages. It was kept.")
    OVER_TOKENS = "over_tokens", _("The newest turn alone has more than %(limit)s tokens. It was kept whole.")


@dataclass(frozen=True, slots=True)
class Remark:
    """One change to the context; ``seq`` is the entry concerned, 0 means none in particular."""

    code: RemarkCode
    seq: int = 0
    values: JsonObject = field(default_factory=empty_object)

    @property
    def text(self) -> str:
        return self.code.sentence % dict(self.values)


@dataclass(frozen=True, slots=True)
class RepairReport:
    remarks: tuple[Remark, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.remarks)

    @property
    def codes(self) -> tuple[RemarkCode, ...]:
        return tuple(remark.code for remark in self.remarks)
