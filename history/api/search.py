"""REST: full-text search of the messages that the viewer may read."""

from dataclasses import asdict

from rest_framework.request import Request
from rest_framework.response import Response

from history.access import reasons
from history.api.base import ApiView, viewer_of
from history.api.parameters import SearchParameters, filters_in
from history.api.responses import page_link
from history.api.schema import documented
from history.api.serializers import SearchPageSerializer
from history.search import facets, named_facets, search


class Search(ApiView):
    @documented("search", "Search", SearchPageSerializer, SearchParameters)
    def get(self, request: Request) -> Response:
        """Messages with these words, newest first. Text from a session of another user is included only if you gave a
        reason for reading that session within the last hour.
        """
        parameters = self.parameters
        viewer, words, filters = viewer_of(request), parameters["q"] or "", filters_in(parameters)
        page = search(viewer, words, filters=filters, before=parameters["cursor"], limit=parameters["limit"])
        body: dict[str, object] = {
            "next": page_link(request, cursor=page.next_before),
            "previous": None,
            "results": page.hits,
            "count": page.count if parameters["count"] else None,
            "facets": None,
        }
        if parameters["facets"]:
            body["facets"] = {
                facet: [{"value": str(value), **asdict(count)} for value, count in counts.items()]
                for facet, counts in named_facets(facets(viewer, words, filters=filters)).items()
            }
        readable = reasons.readable_without_reason(viewer, {hit.session_id for hit in page.hits})
        return Response(SearchPageSerializer(body, context={"opened": readable}).data)
