"""Redaction of credentials and personal data before entries are stored.

Each find leaves a typed placeholder such as `[redacted:openai-key]` and is counted; an entry without a find comes
back as the same object. The live call is never touched: only the stored copy is.
"""

import logging
from collections import Counter
from dataclasses import replace
from functools import cache
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register
from django.utils.module_loading import import_string

from history.entries import EMPTY, Entry, JsonObject, ModelOutput, ToolRequest
from history.redaction import detectors
from history.redaction.detectors import placeholder
from history.redaction.walker import Redacted, RedactionWalk, Redactor, Redactors

logger = logging.getLogger(__name__)

MODES = ("full", "redacted", "no_replies", "metadata", "off")  # each keeps less than the one before
HOOK = "hook"
HOOK_FAILED = "hook-failed"


def stores_bodies(mode: str) -> bool:
    """Whether a key that records in this mode keeps any text at all; if not, nothing of an entry is to be written."""
    return _known(mode) not in ("metadata", "off")


def stricter(mode: str, other: str) -> str:
    """The one of two modes that keeps less: what was promised, and what was decided since."""
    return max(mode, other, key=lambda one: MODES.index(_known(one)))


def redactors_for(mode: str) -> Redactors:
    """What this recording mode asks for, with the hooks and personal detectors of the settings. Cheap to call."""
    if not stores_bodies(mode):
        raise ValueError(f"Mode '{mode}' stores no texts: ask stores_bodies() before redacting.")
    return _redactors_for(mode, tuple(settings.PARLEY_REDACTION_HOOKS), tuple(settings.PARLEY_REDACTION_PERSONAL))


def redacted(entry: Entry, redactors: Redactors) -> Redacted:
    """The entry as it may be stored; the same object where there was nothing to take out."""
    walk = RedactionWalk(redactors)
    if redactors.do_nothing:
        return Redacted(entry=entry, hits=walk.hits)
    stored = entry if redactors.keeps_replies else without_reply(entry)
    return Redacted(entry=walk.value(stored), hits=walk.hits)


def redacted_text(text: str, redactors: Redactors) -> tuple[str, Counter[str]]:
    """A text outside of entries: an error body, a URL, a title."""
    walk = RedactionWalk(redactors)
    return walk.text(text), walk.hits


def redacted_name(name: str, redactors: Redactors) -> str:
    """What something is called, outside of an entry: searched for credentials alone, as the names in entries are."""
    return RedactionWalk(redactors).name(name)


def redacted_json(tree: JsonObject, redactors: Redactors) -> JsonObject:
    return tree if redactors.do_nothing else RedactionWalk(redactors).mapping(tree)


def without_reply(entry: Entry) -> Entry:
    """The answer without its texts: only which tools it called."""
    if not isinstance(entry, ModelOutput):
        return entry
    requests = tuple(ToolRequest(call_id=request.call_id, name=request.name) for request in entry.tool_requests)
    metadata = {**entry.metadata, "recording": "no_replies"}
    return replace(entry, parts=requests, plan=None, metadata=metadata, extra=EMPTY)


def _known(mode: str) -> str:
    if mode not in MODES:
        raise ValueError(f"'{mode}' is not a recording mode: choose from {', '.join(MODES)}.")
    return mode


@cache
def _redactors_for(mode: str, hooks: tuple[str, ...], personal: tuple[str, ...]) -> Redactors:
    loaded = tuple(load_hook(path) for path in hooks)
    if mode == "full":
        return Redactors(others=loaded)
    others: tuple[Redactor, ...] = (*detectors.personal(personal), *loaded)
    return Redactors(credentials=True, others=others, keeps_replies=mode != "no_replies")


class WrongHookError(ValueError):
    """A path of PARLEY_REDACTION_HOOKS does not lead to a callable; the text says what to write instead."""


def load_hook(path: str) -> Redactor:
    """A callable of the operator that may fail in any way: then the text goes, never the clear text through."""
    try:
        function = import_string(path)
    except ImportError as error:
        raise WrongHookError(f"PARLEY_REDACTION_HOOKS names '{path}', which cannot be imported: {error}") from error
    if not callable(function):
        kind = type(function).__name__
        raise WrongHookError(f"PARLEY_REDACTION_HOOKS names '{path}', which is a {kind}, not a callable.")

    def hook(text: str) -> tuple[str, Counter[str]]:
        try:
            answer = function(text)
            if isinstance(answer, str):
                return answer, Counter({HOOK: 1} if answer != text else {})
            cleaned, hits = answer
            if not isinstance(cleaned, str):
                raise TypeError("a hook must return a string, or a string and a Counter")
            return cleaned, Counter({str(name): int(count) for name, count in hits.items()})
        except Exception as error:  # noqa: BLE001 - foreign code; on any error the clear text must not be stored
            # The name alone: the message of an error often quotes the text that it failed on.
            logger.error("Redaction hook %s failed with %s; the text was not stored.", path, type(error).__name__)
            return placeholder(HOOK_FAILED), Counter({HOOK_FAILED: 1})

    return hook


@register("redaction")
def check_redaction_settings(**_: Any) -> list[CheckMessage]:
    """A wrong hook or detector stops the start; it must not be found when the first secret comes by."""
    errors: list[CheckMessage] = []
    for path in settings.PARLEY_REDACTION_HOOKS:
        try:
            load_hook(path)
        except WrongHookError as error:
            hint = "Write the dotted path of a function that takes and returns a string: 'mycompany.privacy.clean'."
            errors.append(Error(str(error), hint=hint, id="history.E001"))
    try:
        detectors.personal(settings.PARLEY_REDACTION_PERSONAL)
    except ValueError as error:
        hint = "Remove the name or correct it."
        errors.append(Error(f"PARLEY_REDACTION_PERSONAL: {error}", hint=hint, id="history.E002"))
    return errors
