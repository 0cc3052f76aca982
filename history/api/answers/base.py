"""What every answer is, and the one form for whatever goes wrong."""

from __future__ import annotations

from rest_framework import serializers

from history.api.fields import Plain


class Answer(Plain):
    """Only ever made from what is there: nobody sends one."""


class PageAnswer(Answer):
    """DRF's envelope of a list; subclasses add `results`."""

    next = serializers.URLField(allow_null=True, help_text="URL of the next page; null on the last page.")
    previous = serializers.URLField(allow_null=True, help_text="URL of the previous page, where a list has one.")


class Wrong(Answer):
    """What is wrong."""

    code = serializers.CharField(help_text="For programs; docs/rest.md lists them.")
    message = serializers.CharField(help_text="For people.")
    fields_ = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField()),
        required=False,
        help_text="Which parameter, and what is wrong with it.",
    )


class Error(Answer):
    """Whatever goes wrong under /api/ has this form."""

    error = Wrong()
