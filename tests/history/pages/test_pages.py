"""The page on which one session is read."""

from __future__ import annotations

import re
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from history.access.reasons import open_for_reading
from history.entries import (
    DebugLog,
    Gap,
    HeadMoved,
    Media,
    ModelInput,
    ModelOutput,
    NotebookSet,
    OtherPart,
    PlanSet,
    Reasoning,
    Retracted,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolsOffered,
    UnknownEntry,
    Usage,
)
from history.models import Message, Session
from history.record import recorder
from history.record.paths import newest_descendant
from tests.factories import (
    create_chat,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)

pytestmark = pytest.mark.django_db


def page_of(session: Session, **where: Any) -> str:
    query = "&".join(f"{name}={value}" for name, value in where.items())
    return f"/s/{session.pk}/" + (f"?{query}" if query else "")


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def read(reader: Client, session: Session, **where: Any) -> str:
    response = reader.get(page_of(session, **where))
    assert response.status_code == 200
    return response.content.decode()


def shown(html: str) -> list[int]:
    return [int(number) for number in re.findall(r'<(?:article|div) class="[^"]*" id="m(\d+)"', html)]


def long_chat(owner: Any, length: int) -> Session:
    return create_chat(owner, *[f"text {number}" for number in range(1, length + 1)])


# Who may see it.


def test_the_owner_reads_what_was_said(reader: Client, ada: Any) -> None:
    html = read(reader, create_chat(ada, "Is it *slow*?", "It waits for the disk."))
    assert "Is it <em>slow</em>?" in html
    assert "It waits for the disk." in html


def test_a_stranger_is_told_that_there_is_no_such_page(client: Client, ada: Any, bob: Any) -> None:
    session = create_chat(ada, "private")
    client.force_login(bob)
    assert client.get(page_of(session)).status_code == 404
    assert client.get(f"/s/{session.pk}/1/").status_code == 404


def test_anonymous_users_are_asked_to_sign_in(client: Client, ada: Any) -> None:
    response = client.get(page_of(create_chat(ada, "private")))
    assert response.status_code == 302
    assert response["Location"].startswith("/accounts/signin/?next=/s/")


def test_staff_read_it_only_with_the_right_to(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "hello")
    client.force_login(staff)
    assert client.get(page_of(session)).status_code == 404
    staff.user_permissions.add(Permission.objects.get(codename="view_session", content_type__app_label="history"))
    assert client.get(page_of(session)).status_code == 403
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "read_session"]))
    open_for_reading(type(staff).objects.get(pk=staff.pk), session, reason="ticket 7")
    html = read(client, session)
    assert "Owner: ada" in html


def test_a_hidden_session_is_gone(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "hello")
    Session.objects.filter(pk=session.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    assert reader.get(page_of(session)).status_code == 404


def test_an_expired_session_is_gone_before_the_purge_comes(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "hello")
    Session.objects.filter(pk=session.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert reader.get(page_of(session)).status_code == 404


# Pages.


def test_the_newest_twenty_are_shown_with_a_way_to_older_ones(reader: Client, ada: Any) -> None:
    html = read(reader, long_chat(ada, 50))
    assert shown(html) == list(range(31, 51))
    assert re.search(r'id="older" class="way" hx-get="\?before=31"', html)
    assert 'rel="prev" href="?before=31"' in html
    assert 'rel="next"' not in html


def test_following_the_links_reads_everything_once_in_both_directions(reader: Client, ada: Any) -> None:
    session = long_chat(ada, 50)
    for relation, query, expected in [("prev", "", range(50, 0, -1)), ("next", "?after=0", range(1, 51))]:
        seen: list[int] = []
        link: str | None = query
        while link is not None:
            html = reader.get(page_of(session) + link).content.decode()
            seen += shown(html)[:: -1 if relation == "prev" else 1]
            match = re.search(rf'rel="{relation}" href="([^"]*)"', html)
            link = match[1] if match else None
        assert seen == list(expected)


def test_a_short_session_has_no_ways_on(reader: Client, ada: Any) -> None:
    html = read(reader, long_chat(ada, 20))
    assert shown(html) == list(range(1, 21))
    assert not re.search(r'hx-get="\?|rel="(prev|next)"', html)


def test_a_permalink_opens_the_page_around_its_entry(reader: Client, ada: Any) -> None:
    html = read(reader, long_chat(ada, 100), at=42)
    assert shown(html) == list(range(33, 53))
    assert 'href="?at=42#m42"' in html


def test_a_permalink_to_a_call_shows_its_results_once(reader: Client, ada: Any) -> None:
    session = long_chat(ada, 31)
    recorder.append_many(session, [model_output("", tool_request("a")), tool_results(tool_result("a"))], after=31)
    recorder.append(session, model_output("done"), after=33)
    numbers = shown(read(reader, session, at=32))
    assert numbers == sorted(set(numbers))
    assert {32, 33, 34} <= set(numbers)


@pytest.mark.parametrize("where", [{"at": 7}, {"leaf": 7}, {"at": 10**15 - 1}])
def test_an_entry_that_is_not_there_has_no_page(reader: Client, ada: Any, where: dict[str, int]) -> None:
    assert reader.get(page_of(create_chat(ada, "one"), **where)).status_code == 404


@pytest.mark.parametrize("value", ["x", "-1", "9" * 40, "1.5", "٣", "%00"])
def test_nonsense_in_the_address_asks_for_nothing(reader: Client, ada: Any, value: str) -> None:
    assert shown(read(reader, create_chat(ada, "one"), before=value, at=value, leaf=value)) == [1]


def test_an_empty_session_says_so(reader: Client, ada: Any) -> None:
    assert "No messages yet" in read(reader, recorder.start_session(owner=ada))


@pytest.mark.parametrize(
    ("region", "where", "numbers", "place"),
    [("older", {"before": 11}, range(1, 11), "afterbegin"), ("newer", {"after": 20}, range(21, 31), "beforeend")],
)
def test_htmx_gets_the_missing_rows_alone_and_caches_know(
    reader: Client, ada: Any, region: str, where: dict[str, int], numbers: range, place: str
) -> None:
    headers = {"HX-Request": "true", "HX-Target": region}
    response = reader.get(page_of(long_chat(ada, 30), **where), headers=headers)
    html = response.content.decode()
    assert html.strip().startswith(f'<div id="{region}"')
    assert f'hx-swap-oob="{place}:#rows"' in html
    assert "<html" not in html
    assert shown(html) == list(numbers)
    assert {"HX-Request", "HX-Target"} <= set(response["Vary"].split(", "))


@pytest.mark.parametrize("length", [10, 1_000])
def test_a_page_takes_as_many_queries_however_long_the_session_is(
    reader: Client, ada: Any, length: int, django_assert_max_num_queries: Any
) -> None:
    session = long_chat(ada, length)
    # The signed-in user (3), session, page, versions, costs, run, its end, queue, sidebar (with what was just
    # deleted or archived), panel, who read it, plan, tree.
    with django_assert_max_num_queries(26):
        read(reader, session)
    with django_assert_max_num_queries(33):
        read(reader, session, at=length // 2, internal=1)


# Branches.


@pytest.fixture
def branched(ada: Any) -> Session:
    session = create_chat(ada, "one", "two", "three", "four")
    edited = recorder.edit(session, seq=3, entry=model_input("drei"))
    recorder.append(session, model_output("vier"), after=edited.seq)
    return session


def test_an_entry_with_other_versions_leads_to_them(reader: Client, branched: Session) -> None:
    html = read(reader, branched)
    assert shown(html) == [1, 2, 6, 7]
    assert "2 of 2" in html
    assert 'href="?at=3#m3" aria-label="Previous version"' in html


def test_another_version_is_shown_with_all_that_followed_it(reader: Client, branched: Session) -> None:
    html = read(reader, branched, at=3)
    assert shown(html) == [1, 2, 3, 4]
    assert "another branch" in html
    assert 'href="?leaf=4&amp;at=3#m3"' in html


def test_a_long_branch_is_found_as_fast_as_it_is_long(ada: Any) -> None:
    session = long_chat(ada, 2_000)
    recorder.edit(session, seq=2, entry=model_output("other"))
    began = time.process_time()
    assert newest_descendant(session, 3, steps=9_999) == 2_000
    assert time.process_time() - began < 1  # by walking the whole session at each step it takes several


def test_reading_a_branch_moves_nothing(reader: Client, branched: Session) -> None:
    read(reader, branched, leaf=4)
    assert Session.objects.get(pk=branched.pk).head == 7


def test_paging_stays_on_the_branch(reader: Client, ada: Any) -> None:
    session = long_chat(ada, 40)
    recorder.edit(session, seq=2, entry=model_output("other"))
    html = read(reader, session, leaf=40)
    assert shown(html) == list(range(21, 41))
    assert 'href="?leaf=40&amp;before=21"' in html


def test_a_continued_leaf_is_a_position_on_the_current_path(reader: Client, ada: Any) -> None:
    html = read(reader, long_chat(ada, 60), leaf=30)
    assert shown(html) == list(range(21, 41))
    assert "another branch" not in html


def test_a_link_to_a_log_shows_it_where_it_hangs(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    recorder.append(session, DebugLog(message="slow"), after=1)
    assert shown(read(reader, session, at=3)) == [1, 3]


# Kinds.


def test_a_tool_call_shows_arguments_and_result_and_a_word_for_its_status(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Why?")
    entries = [
        model_output("Looking.", tool_request("a"), tool_request("b", arguments='{"metric": "disk"}')),
        tool_results(
            tool_result("a", "CPU 3 %", duration=0.5), tool_result("b", "", status="failed", error="timed out")
        ),
    ]
    recorder.append_many(session, entries, after=1)
    html = read(reader, session)
    assert "metric = &quot;disk&quot;" in html
    assert "CPU 3 %" in html
    assert "timed out" in html
    assert re.search(r'class="status success"><span class="dot" aria-hidden="true"></span>success', html)
    assert re.search(r'class="status failed"><span class="dot" aria-hidden="true"></span>failed', html)
    assert "0.5 s" in html


def test_a_call_without_an_answer_says_that_there_is_no_result(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Why?")
    recorder.append(session, model_output("", tool_request("a")), after=1)
    assert "no result" in read(reader, session)


def test_an_answer_says_when_by_which_model_and_at_what_cost(reader: Client, ada: Any) -> None:
    ada.time_zone = "Asia/Shanghai"
    ada.save()
    session = create_chat(ada, "Why?")
    at = timezone.datetime(2026, 3, 1, 20, 30, tzinfo=timezone.get_fixed_timezone(0))  # type: ignore[attr-defined]
    usage = Usage(input_tokens=10, output_tokens=12_345)
    recorder.append(session, model_output("So.", at=at, usage=usage, duration=3.14, model="model-9"), after=1)
    html = read(reader, session)
    assert "model-9" in html
    assert "12\u202f345 tokens" in html
    assert "3.1 s" in html
    assert 'datetime="2026-03-02T04:30:00+08:00"' in html


@pytest.mark.parametrize(("status", "words"), [("interrupted", "cut short"), ("failed", "The answer failed")])
def test_an_answer_that_did_not_end_well_says_so(reader: Client, ada: Any, status: Any, words: str) -> None:
    session = create_chat(ada, "Why?")
    recorder.append(session, model_output("Because", status=status, end_reason="upstream_cut"), after=1)
    html = read(reader, session)
    assert "Because" in html
    assert words in html
    assert "upstream_cut" not in html, "a name for programs"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("length", "The answer reached the maximum length."),
        ("content_filter", "A filter of the provider stopped the answer."),
        ("refusal", "The model refused to answer."),
        ("stop", ""),
    ],
)
def test_an_answer_that_was_ended_for_its_model_says_so(reader: Client, ada: Any, reason: Any, words: str) -> None:
    session = create_chat(ada, "Why?")
    recorder.append(session, model_output("Because of", end_reason=reason), after=1)
    html = read(reader, session)
    assert html.count('<p class="aside">') == bool(words)
    assert words in html


def test_reasoning_and_bookkeeping_are_folded_and_there_is_a_template_for_every_kind(reader: Client, ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    picture = recorder.store_blob(b"png", media_type="image/png")
    entries = [
        SystemInstructionSet(instruction="You look after machines."),
        ToolsOffered(tools=(ToolDefinition(name="sys_monitor", description="x" * 3000),)),
        NotebookSet(content="Likes brevity.", author="ada"),
        ModelInput(parts=(Text(text="Look"), Media(media_type="image/png", sha256=picture, name="chart.png", size=3))),
        ModelOutput(parts=(Reasoning(text="Let me think."), Text(text="Yes."), OtherPart(data={"type": "hologram"}))),
        Summary(first=4, last=5, summary="They looked."),
        Retracted(seq=6, reason="too short"),
        Gap(reason="broken import"),
        UnknownEntry(data={"kind": "hologram", "v": 7}),
        PlanSet(plan="- [x] Look\n- [ ] Repair", agent="helper"),
    ]
    recorder.append_many(session, entries, after=0)
    html = read(reader, session)
    assert shown(html) == list(range(1, 11))
    for words in [
        "You look after machines.", "sys_monitor", "Likes brevity.", "chart.png", "Let me think.",
        "Older messages summarised", "A summary was undone.", "broken import", "<code>hologram</code>",
        "Task plan · helper", "Repair",
    ]:  # fmt: skip
        assert words in html
    assert '<details class="fold">\n    <summary>Reasoning' in html


def test_texts_that_were_dropped_leave_a_note(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "secret", "answer")
    without_guards(Message.objects.filter(session=session, seq=1)).update(
        body=None, salt=None, content="", dropped_at=timezone.now()
    )
    html = read(reader, session)
    assert "retention rules" in html
    assert shown(html) == [1, 2]


def test_internal_entries_are_counted_and_shown_on_demand(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Why?")
    recorder.append_many(
        session, [model_input("remember the rules", is_internal=True), model_output("Because.")], after=1
    )
    recorder.append(session, DebugLog(category="timing", message="slow disk"), after=1)
    html = read(reader, session)
    assert "remember the rules" not in html
    assert "1 internal entry" in html
    html = read(reader, session, internal=1)
    assert "remember the rules" in html
    assert "timing: slow disk" in html


# Hostile and huge.


def test_hostile_markdown_is_harmless_everywhere(reader: Client, ada: Any) -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)> [x](javascript:alert(1))"
    session = recorder.start_session(owner=ada, title=evil)
    entries = [
        model_input(evil),
        model_output(evil, tool_request("a", name=evil, arguments=evil)),
        tool_results(tool_result("a", evil, error=evil, status="failed")),
        UnknownEntry(data={"kind": evil[:40], "text": evil}),
    ]
    recorder.append_many(session, entries, after=0)
    html = read(reader, session)
    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert 'href="javascript:' not in html


def test_ten_megabytes_are_shown_in_their_first_part_and_say_how_long_they_are(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Print it.")
    recorder.append_many(
        session, [model_output("", tool_request("a")), tool_results(tool_result("a", "z" * 10_000_000))], after=1
    )
    html = read(reader, session)
    assert len(html) < 50_000
    assert "The first 4\u202f000 characters of 9.5\xa0MB." in html
    whole = reader.get(f"/s/{session.pk}/3/").json()
    assert len(whole["results"][0]["parts"][0]["text"]) == 10_000_000


def test_a_long_answer_is_cut_between_characters(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Write a lot.", "字" * 100_000)
    html = read(reader, session)
    assert html.count("字") == 20_000
    assert "\ufffd" not in html


def test_nul_bytes_and_lone_surrogates_do_not_break_the_page(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "a\0b \ud800", "ok\0")
    recorder.append_many(
        session,
        [model_output("", tool_request("a", arguments="\0\udfff")), tool_results(tool_result("a", "\0"))],
        after=2,
    )
    html = read(reader, session)
    assert "a\ufffdb" in html
    assert "\0" not in html
    assert reader.get(f"/s/{session.pk}/1/").json()["parts"][0]["text"] == "a\0b \ud800"


# Staff pages.


def test_a_banner_says_that_history_is_off_and_reading_goes_on(reader: Client, ada: Any, settings: Any) -> None:
    session = create_chat(ada, "earlier messages")
    settings.CHAT_HISTORY_ENABLED = False
    html = read(reader, session)
    assert "History is off" in html
    assert "earlier messages" in html


def test_the_page_is_chinese_for_those_who_chose_it(reader: Client, ada: Any) -> None:
    ada.language = "zh-hans"
    ada.save()
    assert "条消息" in read(reader, create_chat(ada, "你好"))


def test_everything_is_there_without_javascript(reader: Client, ada: Any) -> None:
    html = read(reader, long_chat(ada, 50), at=25)
    for link in re.findall(r'hx-get="(\?[^"]*)"', html):
        assert f'href="{link}"' in html
    assert "onclick" not in html


# What programs leave.


def test_client_tags_around_a_message_are_folded_and_named(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "<system-reminder>\nBe *brief*.\n</system-reminder>\nFix the parser.")
    html = read(reader, session)
    assert re.search(r"<summary><code>system-reminder</code></summary>\s*<div[^>]*>Be \*brief\*.</div>", html)
    assert "&lt;system-reminder&gt;" not in html.split('id="m1"')[1].split("</article>")[0]
    assert "Fix the parser." in html


def test_a_reply_that_was_not_kept_is_told_as_such(reader: Client, ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    entries = [model_input("Hello"), ModelOutput(metadata={"recording": "no_replies"}), model_input("And?")]
    recorder.append_many(session, entries, after=0)
    assert "The reply was not stored. This key records requests only." in read(reader, session)


def test_a_move_of_the_head_says_in_words_why(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three")
    recorder.edit(session, seq=3, entry=model_input("another three"))
    assert "An earlier message was changed." in read(reader, session, internal=1)


def test_a_branch_that_begins_with_a_programs_summary_leads_to_the_one_before(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "first", "second", "third", "fourth")
    moved = HeadMoved(to=0, reason="compacted")
    state, summary = SystemInstructionSet(instruction="Be brief."), model_input("A summary of it all.")
    recorder.append_many(session, [moved, state, summary], after=0)
    html = read(reader, session)
    entry = html.split('id="m7"')[1].split("</article>")[0]
    assert "The program summarised earlier messages." in entry
    assert 'href="?at=1#m1"' in entry
    before = read(reader, session, at=1)
    assert "fourth" in before
    assert "The program summarised" not in before.split('id="rows"')[1]
