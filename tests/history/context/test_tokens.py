"""Token estimates, held against what real tokenizers count (`count_tokens.py` made the counts)."""

import json
import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.context.tokens import (
    LEAST_FACTOR,
    MESSAGE_OVERHEAD,
    MOST_FACTOR,
    calibrate,
    estimate_context,
    estimate_entry,
    estimate_media,
    estimate_text,
    estimate_tools,
    updated_factor,
)
from history.context.values import ContextEntry, Role
from history.entries import Media, OtherPart, Reasoning, Text, ToolDefinition, ToolRequest, ToolResult
from tests.factories import example_count

pytestmark = pytest.mark.no_database

CORPUS = json.loads(Path(__file__).with_name("token_counts.json").read_text(encoding="utf-8"))
TOKENIZERS = ("o200k", "cl100k", "claude-2", "qwen")

# Class of text → (mean error, worst error) that we promise against the four vendors' tokenizers, before calibration.
PROMISED = {
    "english": (0.05, 0.07),
    "code": (0.09, 0.16),
    "json": (0.08, 0.25),
    "logs": (0.13, 0.32),
    "markdown": (0.04, 0.06),
    "mixed": (0.07, 0.15),
    "latin_accented": (0.14, 0.32),
    "chinese": (0.22, 0.39),
    "japanese": (0.21, 0.31),
    "korean": (0.22, 0.45),
    "russian": (0.26, 0.61),
    "other_scripts": (0.60, 1.35),
    "emoji": (0.20, 0.42),
}


def errors(kind: str, tokenizer: str, *, factor: float = 1.0) -> list[float]:
    return [abs(estimate_text(sample["text"]) * factor / sample["counts"][tokenizer] - 1) for sample in CORPUS[kind]]


def of_all(kind: str) -> list[float]:
    return [error for tokenizer in TOKENIZERS for error in errors(kind, tokenizer)]


def learnt(samples: Iterable[Any], tokenizer: str) -> float:
    """The factor after the vendor's counts of these texts have come in."""
    factor = 1.0
    for known, sample in enumerate(samples):
        estimated, actual = estimate_text(sample["text"]), sample["counts"][tokenizer]
        factor = updated_factor(factor, samples=known, estimated=estimated, actual=actual)
    return factor


def errors_once_learnt(kind: str, tokenizer: str) -> list[float]:
    """Each text with the factor that the other texts of its class have taught."""
    samples = CORPUS[kind]
    return [
        errors(kind, tokenizer, factor=learnt([*samples[:place], *samples[place + 1 :]], tokenizer))[place]
        for place in range(len(samples))
    ]


def test_every_class_of_text_has_a_promise() -> None:
    assert set(PROMISED) == set(CORPUS)


@pytest.mark.parametrize("kind", PROMISED)
def test_the_estimate_is_as_near_as_promised(kind: str) -> None:
    found = of_all(kind)
    promised_mean, promised_worst = PROMISED[kind]
    assert mean(found) <= promised_mean
    assert max(found) <= promised_worst


# One factor cannot fit the three languages of `other_scripts`, and a class with one text has no other to learn from.
LEARNABLE = [kind for kind in PROMISED if kind not in ("other_scripts", "markdown", "emoji")]


@pytest.mark.parametrize("tokenizer", [*TOKENIZERS, "smollm2"])
@pytest.mark.parametrize("kind", LEARNABLE)
def test_a_calibrated_estimate_is_near_for_any_tokenizer(kind: str, tokenizer: str) -> None:
    found = errors_once_learnt(kind, tokenizer)
    assert mean(found) <= 0.25
    assert max(found) <= 0.31


@pytest.mark.parametrize("tokenizer", [*TOKENIZERS, "smollm2"])
def test_one_factor_for_all_that_a_model_reads_does_no_harm(tokenizer: str) -> None:
    """A model has one factor for all its traffic: over everything together it must be better than none."""
    everything = [sample for samples in CORPUS.values() for sample in samples]
    factor = learnt(everything, tokenizer)
    before = mean(mean(errors(kind, tokenizer)) for kind in CORPUS)
    after = mean(mean(errors(kind, tokenizer, factor=factor)) for kind in CORPUS)
    assert after <= before + 0.01


def test_chinese_is_not_characters_by_four() -> None:
    for sample in CORPUS["chinese"]:
        by_four = abs(len(sample["text"]) / 4 / sample["counts"]["o200k"] - 1)
        assert abs(estimate_text(sample["text"]) / sample["counts"]["o200k"] - 1) < by_four / 2


def test_nothing_costs_nothing_and_something_costs_something() -> None:
    assert estimate_text("") == 0
    assert estimate_text(" ") == 1


@settings(max_examples=example_count(200), deadline=None)
@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_can_be_estimated_and_more_text_costs_no_less(first: str, second: str) -> None:
    # Joining may merge two words or numbers into one.
    assert estimate_text(first + second) >= estimate_text(first) - 2
    assert estimate_text(first + second) <= estimate_text(first) + estimate_text(second) + 2


def message(*parts: Text | Media | Reasoning | ToolRequest | OtherPart) -> ContextEntry:
    return ContextEntry(role=Role.MODEL_INPUT, parts=parts)


def test_every_part_of_a_message_counts() -> None:
    text = "the quick brown fox"
    bare = estimate_entry(message())
    assert bare == MESSAGE_OVERHEAD
    for part in (
        Text(text=text),
        Reasoning(text=text),
        ToolRequest(call_id="a", name="read", arguments='{"path": "x"}'),
        OtherPart(data={"text": text}),
        Media(media_type="image/png"),
    ):
        assert estimate_entry(message(part)) > bare
    result = ToolResult(call_id="a", name="read", parts=(Text(text=text),), error="not found")
    assert estimate_entry(ContextEntry(role=Role.TOOL_RESULT, results=(result,))) > bare + estimate_text(text)
    assert estimate_entry(message().with_live_screen(text)) == bare + estimate_text(text)


def test_tool_schemas_count() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "description": "Where the file is."}}}
    bare = ToolDefinition(name="read")
    assert estimate_tools([ToolDefinition(name="read", parameters=schema)]) > estimate_tools([bare]) + 10
    assert estimate_context([], tools=[bare], system="Be kind.") > estimate_tools([bare])


def test_media_count_by_type_and_size() -> None:
    assert estimate_media(Media(media_type="image/png", size=100_000)) == 250
    assert estimate_media(Media(media_type="image/png", size=50_000_000)) == 3_000
    assert estimate_media(Media(media_type="application/pdf", size=600_000)) == 10_000
    assert estimate_media(Media(media_type="nonsense")) == 1_000


def drift(factor: float, *, actual: int, times: int) -> Iterator[float]:
    for samples in range(times):
        factor = updated_factor(factor, samples=samples, estimated=1_000, actual=actual)
        yield factor


def test_the_factor_goes_to_what_the_vendor_counts() -> None:
    assert list(drift(1.0, actual=1_300, times=5))[-1] == pytest.approx(1.3)


def test_a_factor_that_was_learnt_is_not_thrown_over_by_one_count() -> None:
    settled = updated_factor(1.3, samples=500, estimated=1_000, actual=60_000)
    assert 1.3 < settled < 1.4


def test_a_count_of_nothing_teaches_nothing() -> None:
    assert updated_factor(1.3, samples=3, estimated=0, actual=50) == 1.3
    assert updated_factor(1.3, samples=3, estimated=50, actual=0) == 1.3


@given(st.floats(LEAST_FACTOR, MOST_FACTOR), st.integers(0, 10_000), st.integers(-5, 10**9), st.integers(-5, 10**9))
def test_a_factor_stays_within_its_bounds(previous: float, samples: int, estimated: int, actual: int) -> None:
    factor = updated_factor(previous, samples=samples, estimated=estimated, actual=actual)
    assert LEAST_FACTOR <= factor <= MOST_FACTOR
    assert calibrate(1_000, factor=factor) == math.ceil(1_000 * factor)


def test_a_megabyte_is_estimated_in_a_moment() -> None:
    text = CORPUS["code"][0]["text"] * 1_400
    started = time.process_time()
    estimate_text(text)
    assert time.process_time() - started < 0.5
