"""What a search finds."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from history.api.answers.base import Answer, PageAnswer
from history.api.fields import Time
from history.models import Message


class PieceAnswer(Answer):
    """A stretch of text."""

    text = serializers.CharField()
    is_match = serializers.BooleanField()


class SnippetAnswer(Answer):
    """Stretches of the text around the first match."""

    pieces = serializers.SerializerMethodField()
    is_cut_before = serializers.BooleanField()
    is_cut_after = serializers.BooleanField()

    @extend_schema_field(PieceAnswer(many=True))
    def get_pieces(self, snippet: Any) -> list[dict[str, Any]]:
        return [{"text": text, "is_match": is_match} for text, is_match in snippet.pieces]


class HitAnswer(Answer):
    """A message that was found."""

    session_id = serializers.UUIDField()
    title = serializers.CharField()
    seq = serializers.IntegerField()
    on_path = serializers.BooleanField()
    kind = serializers.CharField()
    role = serializers.ChoiceField(Message.Role.choices)
    status = serializers.ChoiceField(Message.Status.choices)
    agent = serializers.CharField()
    model = serializers.CharField()
    timestamp = Time(source="at")
    snippet = serializers.SerializerMethodField(help_text="null: somebody else's; say why, to read it.")
    reason_needed = serializers.SerializerMethodField()
    is_cut = serializers.BooleanField(help_text="It is so long that not all of it can be found.")
    url = serializers.SerializerMethodField(help_text="Its page.")

    @extend_schema_field(SnippetAnswer(allow_null=True))
    def get_snippet(self, hit: Any) -> Any:
        return None if self.get_reason_needed(hit) else SnippetAnswer(hit.snippet).data

    def get_reason_needed(self, hit: Any) -> bool:
        return hit.session_id not in self.context["opened"]

    def get_url(self, hit: Any) -> str:
        return f"/s/{hit.session_id}/?at={hit.seq}#m{hit.seq}"


class CountAnswer(Answer):
    """How many."""

    number = serializers.IntegerField()
    is_exact = serializers.BooleanField(help_text="false: there are at least so many.")


class FacetAnswer(CountAnswer):
    """How many have this value."""

    value = serializers.CharField()


class SearchAnswer(PageAnswer):
    """A page of hits."""

    results = HitAnswer(many=True, help_text="Newest first.")
    count = CountAnswer(allow_null=True)
    facets = serializers.DictField(child=FacetAnswer(many=True), allow_null=True)
