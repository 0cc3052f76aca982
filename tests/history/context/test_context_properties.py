"""What holds for every path, every cut and all limits."""

import pytest
from hypothesis import given, settings, strategies as st

from history.context.messages import summarised_ranges
from history.context.rendering import reaches_far_enough, render_context
from history.context.repair import find_unpaired, repair
from history.context.values import Context, ContextOptions, RemarkCode, Role, Snapshot
from history.entries import ModelOutput, Node, Retracted, Summary
from tests.factories import context_to_bytes, example_count
from tests.history.conformance.parley import told_in
from tests.history.conformance.sent_messages import sent_messages_of
from tests.history.context.strategies import options, paths, snapshot_of

pytestmark = pytest.mark.no_database

MANY = settings(max_examples=example_count(200), deadline=None)


def load(path: tuple[Node, ...], wanted: ContextOptions, *, page: int) -> Snapshot:
    """A loader as selectors has one: summaries first, then pages backwards until nothing older can matter."""
    state = {node.seq: node for node in path if isinstance(node.entry, Summary | Retracted)}
    covered = summarised_ranges(state.values())
    older = [node for node in path if not any(first <= node.seq <= last for first, last in covered)]
    read: list[Node] = []
    while True:
        older, found = older[: max(len(older) - page, 0)], older[max(len(older) - page, 0) :]
        read = [*found, *read]
        known = state | {node.seq: node for node in read}
        nodes = tuple(known[seq] for seq in sorted(known))
        snapshot = snapshot_of(nodes, loaded_from=read[0].seq if older else 0)
        if reaches_far_enough(snapshot, wanted):
            return snapshot
        page *= 2


@MANY
@given(paths(), options(), st.integers(1, 4))
def test_the_newest_part_renders_like_the_whole_path(path: tuple[Node, ...], wanted: ContextOptions, page: int) -> None:
    part = load(path, wanted, page=page)
    whole = snapshot_of(path)
    assert context_to_bytes(render_context(part, wanted)) == context_to_bytes(render_context(whole, wanted))


@MANY
@given(paths(), options(), st.data())
def test_any_cut_that_reaches_far_enough_renders_like_the_whole(
    path: tuple[Node, ...], wanted: ContextOptions, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(path)))
    state = tuple(node for node in path[:start] if isinstance(node.entry, Summary | Retracted))
    part = snapshot_of((*state, *path[start:]), loaded_from=path[start].seq if start < len(path) else 10_000)
    if reaches_far_enough(part, wanted):
        assert context_to_bytes(render_context(part, wanted)) == context_to_bytes(
            render_context(snapshot_of(path), wanted)
        )


@MANY
@given(paths())
def test_summaries_stand_for_entries_and_mask_results_as_the_plain_rule_says(path: tuple[Node, ...]) -> None:
    answers = {node.seq for node in path if isinstance(node.entry, ModelOutput)}  # some are not fit to send
    told = [one for one in told_in(snapshot_of(path)) if not answers & {*one.numbers}]
    assert told == [one for one in sent_messages_of(path) if not answers & {*one.numbers}]


@MANY
@given(paths(), options())
def test_any_context_pairs_completely_and_begins_with_an_input(path: tuple[Node, ...], wanted: ContextOptions) -> None:
    entries = render_context(snapshot_of(path), wanted).entries
    assert find_unpaired(entries) == ()
    spoken = [entry for entry in entries if entry.role is not Role.SYSTEM]
    assert not spoken or spoken[0].role is Role.MODEL_INPUT
    ids = [call.call_id for entry in entries for call in entry.tool_requests]
    assert len(ids) == len(set(ids))
    assert all(ids)


@MANY
@given(paths(), options())
def test_a_rendered_context_needs_no_repair(path: tuple[Node, ...], wanted: ContextOptions) -> None:
    entries = render_context(snapshot_of(path), wanted).entries
    again, report = repair(entries)
    assert again == entries
    assert not report.remarks


@MANY
@given(paths(), options())
def test_the_limits_hold_together_or_the_report_says_why_not(path: tuple[Node, ...], wanted: ContextOptions) -> None:
    context = render_context(snapshot_of(path), wanted)
    if wanted.max_messages and RemarkCode.OVER_MESSAGES not in context.report.codes:
        assert _messages(context, wanted) <= wanted.max_messages
    if wanted.max_tokens and RemarkCode.OVER_TOKENS not in context.report.codes and context.entries:
        assert context.tokens <= wanted.max_tokens or _messages(context, wanted) == 0


def _messages(context: Context, wanted: ContextOptions) -> int:
    """What was said, without the messages made for this call."""
    return sum(1 for entry in context.entries if entry.origin or entry.results)


@MANY
@given(paths(), options())
def test_neither_errors_nor_notes_nor_logs_reach_a_model(path: tuple[Node, ...], wanted: ContextOptions) -> None:
    assert b"secret" not in context_to_bytes(render_context(snapshot_of(path), wanted))


@MANY
@given(paths(), options())
def test_the_live_screen_is_shown_once_and_last(path: tuple[Node, ...], wanted: ContextOptions) -> None:
    entries = render_context(snapshot_of(path), wanted).entries
    heard = [entry for entry in entries if entry.role in (Role.MODEL_INPUT, Role.TOOL_RESULT)]
    assert [entry.live_screen for entry in heard[:-1]] == [None] * len(heard[:-1])
    if heard:
        assert heard[-1].live_screen == wanted.live_screen
