"""Random histories, with the steps of `test_model_based` and files: exported, wiped, restored, each is what it was."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from history.entries import Media, ModelInput, Text
from history.record import recorder
from tests.factories import example_count
from tests.history.conformance.state_machine import PICK, WHERE, SideBySide
from tests.history.formats.exported import everything, restored, wipe
from tests.history.record.test_model_based import Histories, Summaries

pytestmark = pytest.mark.runs_first


class RoundTrip(SideBySide):
    @rule(pick=PICK, where=WHERE)
    def attach(self, pick: int, where: int | None) -> None:
        word = self.word()
        name = recorder.store_blob(word.encode(), media_type="text/plain")
        media = Media(media_type="text/plain", sha256=name, name="file.txt")
        self.append(pick, where, [ModelInput(parts=(Text(text="l" * 66_000 + f" {word}"), media))])

    def teardown(self) -> None:
        """After the last step; then the machine verifies the record, which must be sound."""
        if hasattr(self, "run"):
            before = everything()
            wipe()
            items = restored(before)
            assert [item for item in items if item.outcome != "imported" or item.notes] == []
            assert everything() == before
        super().teardown()


class RestoredHistories(RoundTrip, Histories):
    pass


class RestoredSummaries(RoundTrip, Summaries):
    pass


@pytest.mark.django_db
@pytest.mark.parametrize("steps", [RestoredHistories, RestoredSummaries])
def test_any_history_is_the_same_after_a_round_trip(steps: type[SideBySide]) -> None:
    many = int(os.environ.get("PARLEY_STEPS", "1"))
    run_state_machine_as_test(
        steps,
        settings=settings(
            max_examples=example_count(4) * many,
            stateful_step_count=15,
            deadline=None,
            derandomize=many == 1,
            phases=[Phase.generate] if many == 1 else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
