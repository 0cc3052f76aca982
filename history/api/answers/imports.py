"""Imports, and what became of each conversation."""

from __future__ import annotations

from rest_framework import serializers

from history.api.answers.base import Answer
from history.api.fields import Time
from history.importing import ImportOutcome, jobs
from history.models import ImportJob


class NoteAnswer(Answer):
    """What was repaired or lost on the way in."""

    level = serializers.CharField(help_text="repaired, lost or ignored.")
    what = serializers.CharField()
    where = serializers.CharField()
    count = serializers.IntegerField()


class ImportItemAnswer(Answer):
    """What became of one conversation, or of one file."""

    outcome = serializers.ChoiceField([outcome.value for outcome in ImportOutcome])
    file = serializers.CharField()
    format = serializers.CharField()
    title = serializers.CharField()
    session = serializers.UUIDField(allow_null=True)
    entries = serializers.IntegerField(help_text="That were stored now.")
    why = serializers.CharField(help_text="Why it was refused.")
    notes = NoteAnswer(many=True)


class ImportAnswer(Answer):
    """How far an import is, and its report."""

    id = serializers.UUIDField()
    state = serializers.ChoiceField(ImportJob.State.choices)
    is_interrupted = serializers.SerializerMethodField(help_text="Whoever ran it is gone: send the file again.")
    files = serializers.ListField(child=serializers.DictField())
    size = serializers.SerializerMethodField(help_text="Bytes.")
    bytes_read = serializers.IntegerField(help_text="Of an archive: of what is in it.")
    created_at = Time()
    ended_at = Time(allow_null=True)
    error = serializers.CharField()
    counts = serializers.DictField(child=serializers.IntegerField(), help_text="How many of each outcome.")
    items = ImportItemAnswer(many=True, help_text="The first of very many.")

    def get_is_interrupted(self, job: ImportJob) -> bool:
        return jobs.is_interrupted(job)

    def get_size(self, job: ImportJob) -> int:
        return sum(int(file["size"]) for file in job.files)
