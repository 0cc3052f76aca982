"""`/api/history/sessions/<id>/summaries`: summarise older messages, undo a summary."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from asgiref.sync import async_to_sync
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from history.access.permissions import Purpose
from history.api.base import ApiView, session_for
from history.api.errors import ConflictError, ResourceNotFound
from history.api.fields import LARGEST, BodySerializer, PlainSerializer
from history.api.schema import documented
from history.errors import NoSuchEntry
from relay.chat import error_texts
from relay.conversation import controls
from relay.errors import NoSuchModel, RelayError
from relay.live import groups


class SummaryRequest(BodySerializer):
    """Missing fields take the value of the session."""

    model = serializers.RegexField(
        r"\S", required=False, max_length=160, help_text="Model that writes the summary: `provider/model`."
    )
    instead_of = serializers.IntegerField(
        required=False, min_value=1, max_value=LARGEST, help_text="Number of a summary to replace."
    )


class SummariesSerializer(PlainSerializer):
    summaries = serializers.ListField(
        child=serializers.IntegerField(),
        help_text="Numbers of the new summaries. Empty if there was nothing to summarise.",
    )
    is_waiting = serializers.BooleanField(
        help_text="Whether the summary is written before the next step of a running answer."
    )


@contextmanager
def _api_errors() -> Iterator[None]:
    try:
        yield
    except NoSuchModel as error:
        raise ValidationError({"model": [error_texts.error_text(error)]}) from error
    except (NoSuchEntry, controls.NoSuchSummary) as error:
        raise ResourceNotFound from error
    except RelayError as error:
        raise ConflictError(error_texts.error_text(error), "not_possible") from error


class Summaries(ApiView):
    scopes = {"POST": "write"}

    @documented(
        "summarise", "Summarise older messages", SummariesSerializer, body=SummaryRequest, statuses=(409, 413, 415)
    )
    def post(self, request: Request, session_id: str) -> Response:
        """Ask a model for a summary, which may take a while. The messages are kept; models get the summary instead."""
        session = session_for(request, session_id, Purpose.WRITE)
        parsed = SummaryRequest(data=request.data)
        parsed.is_valid(raise_exception=True)
        made: list[int] = []
        is_waiting = False
        with _api_errors(), suppress(controls.NothingToSummarise):
            sent, turn = controls.prepare_compression(session.owner, session, client={}, **parsed.validated_data)
            is_waiting = turn is None
            made = async_to_sync(controls.run_compression)(session, sent, turn) if turn else []
        return Response({"summaries": made, "is_waiting": is_waiting})


class OneSummary(ApiView):
    scopes = {"DELETE": "write"}

    @documented("take_summary_back", "Undo a summary", None, success=204, statuses=(409,))
    def delete(self, request: Request, session_id: str, seq: int) -> Response:
        """Models get the original messages again. The summary is kept in the record and marked as undone."""
        session = session_for(request, session_id, Purpose.WRITE)
        with _api_errors():
            controls.retract_summary(session.owner, session, seq=seq)
        groups.notify_session(session.pk)
        return Response(status=204)
