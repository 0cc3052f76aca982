"""What a page asks for, read with care: a verb and a few typed fields."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from relay.conversation import Draft

LARGEST = 2**53


class InvalidRequest(ValueError):
    """It cannot be read; the text is for whoever sent it."""


@dataclass(frozen=True, slots=True)
class ActionRequest:
    type: str
    fields: Mapping[str, Any]

    @classmethod
    def read(cls, text: str, *, verbs: Iterable[str]) -> ActionRequest:
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidRequest(_("This is not JSON.")) from None
        if not isinstance(data, dict) or not isinstance(data.get("type"), str):
            raise InvalidRequest(_("An intent is an object with a “type”."))
        if data["type"] not in verbs:
            raise InvalidRequest(_("Unknown message type “%(type)s”.") % {"type": data["type"][:40]})
        return cls(data["type"], data)

    def text(self, name: str) -> str:
        value = self.fields.get(name, "")
        if not isinstance(value, str):
            raise InvalidRequest(_("“%(name)s” has to be a text.") % {"name": name})
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A form with one such field sends a text, with several a list."""
        value = self.fields.get(name) or []
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise InvalidRequest(_("“%(name)s” has to be a list of texts.") % {"name": name})
        return tuple(values)

    def optional_number(self, name: str) -> int | None:
        value = self.fields.get(name, "")
        if value in ("", None):
            return None
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST:
            raise InvalidRequest(_("“%(name)s” has to be the number of an entry.") % {"name": name})
        return value

    def number(self, name: str) -> int:
        value = self.optional_number(name)
        if value is None:
            raise InvalidRequest(_("“%(name)s” is missing.") % {"name": name})
        return value

    def optional_id(self, name: str) -> UUID | None:
        value = self.text(name)
        try:
            return UUID(value) if value else None
        except ValueError:
            raise InvalidRequest(_("“%(name)s” is not an id.") % {"name": name}) from None

    def draft(self) -> Draft:
        return Draft(
            text=self.text("text"),
            attachments=self.texts("attachment"),
            agent=self.text("agent"),
            model=self.text("model"),
        )
