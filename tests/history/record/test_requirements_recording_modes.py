"""What a key's recording mode means for the calls themselves: no texts beside the entries that the mode forbids."""

from __future__ import annotations

from typing import Any

import pytest

from history.access import keys
from history.entries import Usage
from history.models import Blob, Exchange, Message
from history.record import exchanges, recorder
from tests.factories import inputs_of, model_output

pytestmark = pytest.mark.django_db

SECRET = "sk-ant-api03-" + "a1B2" * 24
INPUTS = {"system": f"the key is {SECRET}", "long": f"{SECRET} and so on " * 200, "tools": [{"env": {"key": SECRET}}]}


def opened(owner: Any, mode: str) -> Exchange:
    key = keys.create(name=mode, owner=owner, recording=mode).api_key
    session = recorder.start_session(owner=owner, api_key=key, source="relay")
    return exchanges.open_exchange(session, owner=owner, api_key=key, inputs=INPUTS)


def written() -> str:
    blobs = [bytes(data).decode() for data in Blob.objects.values_list("data", flat=True)]
    return str([list(Exchange.objects.values()), list(Message.objects.values()), blobs])


@pytest.mark.parametrize("mode", ["redacted", "no_replies"])
def test_what_a_call_was_made_from_is_stored_without_its_secrets(ada: Any, mode: str) -> None:
    exchange = opened(ada, mode)
    assert SECRET not in written()
    inputs = inputs_of(Exchange.objects.get(pk=exchange.pk))
    assert inputs["system"].startswith("the key is [redacted:")
    assert inputs["tools"][0]["env"]["key"].startswith("[redacted:")
    exchanges.finish(exchange, None, end_reason="stopped")


def test_without_redaction_it_is_stored_as_it_was(ada: Any) -> None:
    exchange = opened(ada, "full")
    assert inputs_of(Exchange.objects.get(pk=exchange.pk)) == INPUTS
    exchanges.finish(exchange, None, end_reason="stopped")


@pytest.mark.parametrize("mode", ["metadata", "off"])
@pytest.mark.parametrize("end_reason", ["done", "upstream_error", "client_gone"])
def test_where_no_texts_are_kept_a_call_still_ends_with_its_reason_and_counts(
    ada: Any, mode: str, end_reason: str
) -> None:
    exchange = opened(ada, mode)
    answer = model_output("Hippopotamus", usage=Usage(input_tokens=120, output_tokens=30))
    exchanges.note_partial(exchange.pk, answer)
    assert exchanges.flush_partials() == 1
    assert Exchange.objects.get(pk=exchange.pk).partial == ""
    assert exchanges.finish(exchange, answer, end_reason=end_reason, error="Hippopotamus refused") is None
    assert (exchange.end_reason, exchange.usage["output_tokens"]) == (end_reason, 30)
    assert "Hippopotamus" not in written()
    assert SECRET not in written()
    assert not Message.objects.exists()
