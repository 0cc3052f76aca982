"""Form field for the reason that opens another user's session (see `history.access.reasons`)."""

from __future__ import annotations

from typing import Any

from django import forms

from history.access.reasons import LONGEST, SHORTEST


class ReasonField(forms.CharField):
    """Some lines of text, unless another `widget` is given."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("widget", forms.Textarea(attrs={"rows": 3}))
        super().__init__(min_length=SHORTEST, max_length=LONGEST, **options)
