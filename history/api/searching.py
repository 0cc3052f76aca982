"""`/api/history/search`: full text over everything that one may read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from rest_framework.request import Request
from rest_framework.response import Response

from history.access import reasons
from history.api.answers import SearchAnswer
from history.api.pagination import page_link
from history.api.query import SearchAsked
from history.api.schema import documented
from history.api.views import ApiView, viewer_of
from history.models import ApiKey
from history.search import Filters, facets, search

NOBODY = (0,)  # no user and no key has this id


class Search(ApiView):
    @documented(
        "search",
        "Search",
        SearchAnswer,
        asked=SearchAsked,
        description="Messages with these words, newest first. Where a hit is in somebody else's session, its text "
        "is shown to those who have given a reason for reading it within the last hour.",
    )
    def get(self, request: Request) -> Response:
        asked = SearchAsked.of(request)
        viewer, words, filters = viewer_of(request), asked["q"] or "", _filters(asked)
        results = search(viewer, words, filters=filters, before=asked["cursor"], limit=asked["limit"])
        told = {
            "next": page_link(request, cursor=results.next_before),
            "previous": None,
            "results": results.hits,
            "count": results.count if asked["count"] else None,
            "facets": _named(facets(viewer, words, filters=filters)) if asked["facets"] else None,
        }
        readable = reasons.readable_without_reason(viewer, {hit.session_id for hit in results.hits})
        return Response(SearchAnswer(told, context={"opened": readable}).data)


def _filters(asked: Mapping[str, Any]) -> Filters:
    same = ("source", "client", "agent", "model", "tool", "role", "status", "session")
    return Filters(
        owner=_ids(get_user_model(), "username", asked["owner"]),
        key=_ids(ApiKey, "prefix", asked["key"]),
        has_error=asked["has_error"],
        since=asked["from"],
        until=asked["to"],
        **{name: tuple(asked[name] or ()) for name in same},
    )


def _ids(model: Any, column: str, names: Sequence[str] | None) -> tuple[int, ...]:
    """A name that nobody has is no error: there is nothing of theirs."""
    if not names:
        return ()
    return tuple(model.objects.filter(**{f"{column}__in": names}).values_list("pk", flat=True)) or NOBODY


def _named(counted: Any) -> dict[str, list[dict[str, Any]]]:
    """Owners and keys by their names, as filters take them."""
    names: dict[str, dict[Any, str]] = {
        "owner": dict(get_user_model().objects.filter(pk__in=counted["owner"]).values_list("pk", "username")),
        "key": dict(ApiKey.objects.filter(pk__in=counted["key"]).values_list("pk", "prefix")),
    }
    return {
        facet: [
            {"value": names.get(facet, {}).get(value, str(value)), "number": count.number, "is_exact": count.is_exact}
            for value, count in values.items()
        ]
        for facet, values in counted.items()
    }
