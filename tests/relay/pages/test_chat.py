"""The chat page over plain HTTP: who may see and say what, as it is without a script."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Permission
from django.test import AsyncClient, Client
from django.utils import timezone

from history.access import audit, permissions
from history.access.reasons import READ, open_for_reading
from history.answers.events import AnswerFailed
from history.db.process_state import process_state
from history.entries import Media, ModelInput, SystemInstructionSet, Text, Usage
from history.models import Exchange, Session
from history.record import recorder
from relay.conversation.turns import NotPossible
from relay.live.answer_html import AnswerCursor
from relay.models import Agent, QueuedMessage, Run
from relay.pages.chat import fragments
from relay.pages.panel import panel_of
from relay.providers import local, registry
from relay.providers.base import Model
from relay.providers.http import HttpProvider
from relay.providers.local_server import MODEL_NAME
from relay.runtime.async_db import in_database
from relay.runtime.locale import ViewerLocale
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results
from tests.relay.conftest import Scripted, Talk
from tests.vendors import Vendors
from tests.vendors.setup import endpoint_at

pytestmark = pytest.mark.any_database


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
async def writer(talk: Talk) -> AsyncClient:
    client = AsyncClient()
    await client.aforce_login(talk.user)
    return client


def html_of(response: Any) -> str:
    return str(response.content.decode())


def page(client: Client, address: Any, **headers: str) -> str:
    response = client.get(address if isinstance(address, str) else address.get_absolute_url(), headers=headers)
    assert response.status_code == 200
    return html_of(response)


# Who may see and say what.


@pytest.mark.django_db
def test_the_owner_reads_and_writes_over_a_socket(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    html = page(reader, session)
    assert f'ws-connect="/ws/s/{session.pk}/?shown=2&amp;leaf="' in html
    assert 'id="composer" class="composer" method="post"' in html
    assert '<input type="hidden" id="composer-after" name="after" value="2">' in html
    assert "data-edit" in html


@pytest.mark.django_db
def test_staff_read_without_box_or_socket_and_cannot_post(client: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "one", "two")
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "read_session"]))
    open_for_reading(type(staff).objects.get(pk=staff.pk), session, reason="ticket 7")
    client.force_login(staff)
    html = page(client, session)
    assert "This conversation belongs to ada" in html
    for mark in ("ws-connect", 'id="composer"', "data-edit", "ws-send", "/settings/"):
        assert mark not in html
    assert client.post(session.get_absolute_url(), {"text": "hello"}).status_code == 404
    assert client.get(f"/s/{session.pk}/1/edit/").status_code == 404
    assert client.post(f"/s/{session.pk}/settings/", {"title": "mine"}).status_code == 404
    assert client.get(f"/s/{session.pk}/panel/").status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["", "panel/", "1/", "1/edit/"])
def test_a_stranger_finds_nothing_and_the_signed_out_are_asked_to_sign_in(
    client: Client, ada: Any, bob: Any, path: str
) -> None:
    address = create_chat(ada, "one", "two").get_absolute_url() + path
    assert client.get(address)["Location"].startswith("/accounts/signin/")
    client.force_login(bob)
    assert client.get(address).status_code == 404
    assert client.post(address, {"text": "hello"}).status_code in (404, 405)


@pytest.mark.django_db
def test_in_the_middle_of_a_long_conversation_there_is_a_box_and_no_socket(reader: Client, ada: Any) -> None:
    session = create_chat(ada, *[f"text {number}" for number in range(1, 61)])
    html = page(reader, f"/s/{session.pk}/?at=20")
    assert "ws-connect" not in html
    assert "ws-send" not in html
    assert 'id="composer"' in html
    assert 'id="newer" class="way" hx-get="?after=30"' in html


@pytest.mark.django_db
def test_on_another_branch_the_box_goes_on_there(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    recorder.edit(session, seq=3, entry=model_input("drei"))
    html = page(reader, f"/s/{session.pk}/?at=3")
    assert '<input type="hidden" name="leaf" value="4">' in html
    assert 'name="after" value="4"' in html
    assert f"/ws/s/{session.pk}/?shown=4&amp;leaf=4" in html


@pytest.mark.django_db
def test_nothing_is_taken_while_history_is_off(reader: Client, ada: Any, settings: Any) -> None:
    session = create_chat(ada, "one")
    settings.CHAT_HISTORY_ENABLED = False
    for address in ("/", session.get_absolute_url()):
        html = page(reader, address)
        assert "History is off" in html
        assert 'id="composer"' not in html
        assert "ws-connect" not in html


@pytest.mark.django_db
def test_a_new_chat_offers_examples_commands_and_models_and_creates_nothing(reader: Client, scripted: Scripted) -> None:
    scripted(models=[Model(name="script", label="Script One")], label="Theatre")
    html = page(reader, "/")
    assert html.count('class="example"') == 3
    assert 'value="/sys_monitor cpu"' in html
    assert 'data-name="rollback"' in html
    assert '<optgroup label="Theatre">' in html
    assert '<option value="scripted/script">Script One</option>' in html
    assert not Session.objects.exists()


@pytest.mark.django_db
def test_what_was_picked_last_in_a_session_is_picked_again(reader: Client, ada: Any, scripted: Scripted) -> None:
    scripted(models=[Model(name="one"), Model(name="two")])
    Agent.objects.all().delete()
    Agent.objects.create(name="first", is_default=True)
    Agent.objects.create(name="second", label="The Second")
    session = create_chat(ada, "one", agent="second")
    Session.objects.filter(pk=session.pk).update(metadata={"model": "scripted/two"})
    html = page(reader, session)
    assert '<option value="scripted/two" selected>two</option>' in html
    assert '<option value="second" selected>The Second</option>' in html


# Saying something without a script.


async def test_a_post_begins_a_session_and_leads_to_it(writer: AsyncClient, talk: Talk) -> None:
    talk.scripted("Good day.")
    response = await writer.post("/", {"text": "Hello?"})
    assert response.status_code == 302
    talk.session = await in_database(Session.objects.get)
    assert response["Location"] == talk.session.get_absolute_url()
    await talk.until_ended()
    assert await talk.texts() == [("user", "Hello?"), ("assistant", "Good day.")]


async def test_htmx_is_told_where_to_go(writer: AsyncClient, talk: Talk) -> None:
    talk.scripted("Good day.")
    response = await writer.post("/", {"text": "Hello?"}, headers={"HX-Request": "true"})
    talk.session = await in_database(Session.objects.get)
    assert response["HX-Redirect"] == talk.session.get_absolute_url()
    await talk.until_ended()


async def test_a_post_to_a_session_says_something_there(writer: AsyncClient, talk: Talk) -> None:
    talk.scripted("One.", "Two.")
    await talk.begin("First?")
    await talk.until_ended()
    response = await writer.post(talk.session.get_absolute_url(), {"text": "Second?", "after": await talk.head()})
    assert response.status_code == 302
    await talk.until_ended()
    assert [text for _, text in await talk.texts()] == ["First?", "One.", "Second?", "Two."]


@pytest.mark.parametrize("text", ["", "   ", "/title"])
async def test_what_is_refused_is_explained_and_the_words_stay_in_the_box(
    writer: AsyncClient, talk: Talk, text: str
) -> None:
    talk.scripted("One.")
    response = await writer.post("/", {"text": text, "model": "scripted/script"})
    assert response.status_code == 422
    html = html_of(response)
    assert '<div class="note error small" role="alert">' in html
    assert f">{text}</textarea>" in html
    assert '<option value="scripted/script" selected>' in html
    assert not await in_database(Session.objects.exists)


async def test_a_refused_follow_up_stays_in_the_box(writer: AsyncClient, talk: Talk) -> None:
    talk.scripted("One.")
    session = await talk.begin("First?")
    await talk.until_ended()
    response = await writer.post(session.get_absolute_url(), {"text": "Second?", "model": "no/such"})
    assert response.status_code == 422
    assert ">Second?</textarea>" in html_of(response)


async def test_help_is_given_without_a_session(writer: AsyncClient, talk: Talk) -> None:
    response = await writer.post("/", {"text": "/help"})
    assert response.status_code == 200
    assert "<code>/rollback" in html_of(response)
    assert '<div class="note error small" role="alert">' not in html_of(response)


async def test_words_in_place_of_an_answer_are_shown_after_the_reload(writer: AsyncClient, talk: Talk) -> None:
    talk.scripted("One.")
    await talk.begin("First?")
    await talk.until_ended()
    address = talk.session.get_absolute_url()
    response = await writer.post(address, {"text": "/title The **loom**", "after": await talk.head()})
    assert response.status_code == 302
    assert "The title is" in html_of(await writer.get(address))


async def test_a_fork_leads_to_the_new_session(writer: AsyncClient, talk: Talk) -> None:
    talk.scripted("One.")
    await talk.begin("First?")
    await talk.until_ended()
    response = await writer.post(talk.session.get_absolute_url(), {"text": "/fork", "after": await talk.head()})
    assert response["Location"] != talk.session.get_absolute_url()
    assert (await writer.get(response["Location"])).status_code == 200


# What a page shows.


@pytest.mark.django_db
def test_a_running_answer_can_be_stopped_and_what_waits_is_shown(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    run = Run.objects.create(session=session, owner=ada, leaf=1)
    QueuedMessage.objects.create(session=session, owner=ada, text="and then?")
    html = page(reader, session)
    assert f'"type": "stop", "run": "{run.pk}"' in html
    assert "answering" in html
    assert "and then?" in html


@pytest.mark.django_db
@pytest.mark.parametrize(("status", "verbs"), [("interrupted", ["continue", "regenerate"]), ("failed", ["regenerate"])])
def test_an_answer_that_ended_badly_says_what_to_do(reader: Client, ada: Any, status: Any, verbs: list[str]) -> None:
    session = create_chat(ada, "Why?")
    recorder.append(session, model_output("Because", status=status, end_reason="upstream_cut"), after=1)
    html = page(reader, session)
    ended = html[html.index(f'class="ended {status}"') : html.index("Change the model")]
    assert re.findall(r'"type": "(\w+)"', ended) == verbs
    assert "The connection to the provider was lost." in ended


@pytest.mark.django_db
def test_only_staff_read_which_key_to_check_and_what_the_provider_wrote(
    reader: Client, ada: Any, vendors: Vendors
) -> None:
    endpoint = endpoint_at(vendors, "openai-chat", name="looms", key_variable="LOOMS_API_KEY")
    process_state.set(registry.Router([HttpProvider(endpoint)]))
    session = create_chat(ada, "Why?")
    answer = model_output(
        "", status="failed", end_reason="upstream_error", provider="looms", error="Account 4711 knows no such key."
    )
    recorder.append(session, replace(answer, metadata={"failure": {"kind": "authentication"}}), after=1)
    shown = page(reader, session)
    assert "contact your administrator" in shown
    assert "LOOMS_API_KEY" not in shown
    assert "4711" not in shown
    type(ada).objects.filter(pk=ada.pk).update(is_staff=True)
    seen_by_staff = page(reader, session)
    assert "Check LOOMS_API_KEY and restart Parley." in seen_by_staff
    assert "Account 4711 knows no such key." in seen_by_staff


@pytest.mark.django_db
def test_a_question_that_waits_has_a_box_for_its_answer(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Paint it.")
    asked = tool_request("q1", name="ask_user", arguments='{"question": "Which *colour*?", "choices": ["red", "blue"]}')
    recorder.append(session, model_output("", asked), after=1)
    html = page(reader, session)
    assert "Which <em>colour</em>?" in html
    assert '<input type="hidden" name="call_id" value="q1">' in html
    assert html.count("data-choice") == 2
    recorder.append(session, tool_results(tool_result("q1", "blue", name="ask_user")), after=2)
    assert "data-choice" not in page(reader, session)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("offered", "shown"),
    [(["red", "", "  ", "blue", " red "], ["red", "blue"]), ("red", []), ([7, None, {}], []), ([], [])],
)
def test_a_question_offers_each_choice_once_and_no_blank_ones(
    reader: Client, ada: Any, offered: Any, shown: list[str]
) -> None:
    session = create_chat(ada, "Paint it.")
    asked = tool_request("q1", name="ask_user", arguments=json.dumps({"question": "Which?", "choices": offered}))
    recorder.append(session, model_output("", asked), after=1)
    assert re.findall(r"data-choice>([^<]*)<", page(reader, session)) == shown


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("texts", "fields", "is_offered"),
    [
        (("Why?",), {}, True),
        (("Why?", "Because."), {}, False),
        (("Why?", "Because.", "And?"), {}, True),
        (("Why?",), {"source": Session.Source.RELAY}, False),
        ((), {}, False),
    ],
)
def test_a_message_without_an_answer_can_be_answered(
    reader: Client, ada: Any, texts: tuple[str, ...], fields: dict[str, Any], is_offered: bool
) -> None:
    html = page(reader, create_chat(ada, *texts, **fields))
    assert ("This message has no answer." in html) is is_offered
    assert ('"type": "continue"' in html) is is_offered


@pytest.mark.django_db
def test_the_result_of_a_finished_task_is_read_as_text(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Do it.")
    recorder.append(
        session,
        model_output("", tool_request("f", name="finish_task", arguments='{"result": "All **done**."}')),
        after=1,
    )
    assert "All <strong>done</strong>." in page(reader, session)


@pytest.mark.django_db
def test_the_whole_of_a_long_result_is_loaded_in_its_place(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Print it.")
    printed = "z" * 5_000 + "<end>"
    recorder.append_many(
        session, [model_output("", tool_request("a")), tool_results(tool_result("a", printed))], after=1
    )
    html = page(reader, session)
    address = f"/s/{session.pk}/3/?text=results.0.parts.0.text"
    assert f'href="{address}" hx-get="{address}"' in html
    assert "&lt;end&gt;" not in html
    fragment = page(reader, address, **{"HX-Request": "true"})
    assert fragment.strip().startswith('<div class="long">')
    assert "&lt;end&gt;" in fragment
    plain = reader.get(address)
    assert plain["Content-Type"] == "text/plain; charset=utf-8"
    assert plain.content.decode() == printed


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["", "results", "results.7.error", "kind.x", "results.x", "." * 40])
def test_a_text_that_is_not_there_is_not_found(reader: Client, ada: Any, path: str) -> None:
    session = create_chat(ada, "Print it.")
    recorder.append_many(session, [model_output("", tool_request("a")), tool_results(tool_result("a"))], after=1)
    assert reader.get(f"/s/{session.pk}/3/?text={path}").status_code == 404


@pytest.mark.django_db
def test_show_all_renders_the_whole_of_a_long_answer_and_of_a_question(reader: Client, ada: Any) -> None:
    long = "Some **strong** words.\n\n" * 1_500
    session = create_chat(ada, f"{long}The *question*.", f"{long}The _end_ and ```")
    html = page(reader, session)
    assert "The first 20" in html
    for seq, end in ((1, "The <em>question</em>."), (2, "The <em>end</em> and ```")):
        response = reader.get(f"/s/{session.pk}/{seq}/?text=parts.0.text", headers={"HX-Request": "true"})
        whole = response.content.decode()
        assert whole.count("<strong>strong</strong>") == 1_500
        assert end in whole
        assert "**" not in whole


@pytest.mark.django_db
def test_a_message_is_given_for_copying_as_it_was_written(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Is it *slow*? \ud800")
    assert reader.get(f"/s/{session.pk}/1/?as=text").content.decode() == "Is it *slow*? \ufffd"


@pytest.mark.django_db
def test_only_messages_of_users_can_be_edited(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "<one>", "two")
    form = page(reader, f"/s/{session.pk}/1/edit/")
    assert "&lt;one&gt;</textarea>" in form
    assert 'name="seq" value="1"' in form
    assert reader.get(f"/s/{session.pk}/2/edit/").status_code == 404
    assert reader.get(f"/s/{session.pk}/3/edit/").status_code == 404


# The panel.


@pytest.fixture
def worked(ada: Any, scripted: Scripted) -> Session:
    """A turn of a second with a model, half a second with a tool, and the model again."""
    scripted(models=[Model(name="script", window=100_000)])
    began = timezone.now() - timedelta(minutes=1)
    session = recorder.start_session(owner=ada, title="Loom")
    usage = Usage(input_tokens=24_000, output_tokens=1_000)
    outcome = tool_result("a", started_at=began + timedelta(seconds=1), duration=0.5)
    entries = [
        SystemInstructionSet(instruction="Weave."),
        model_input("Why?", at=began),
        model_output("", tool_request("a"), provider="scripted", model="script", usage=usage),
        tool_results(outcome),
        model_output("So.", provider="scripted", model="script", usage=usage),
    ]
    recorder.append_many(session, entries, after=0)
    for start in (0.0, 1.5):
        at = began + timedelta(seconds=start)
        fields = {"started_at": at, "ended_at": at + timedelta(seconds=1), "end_reason": "done", "model": "script"}
        Exchange.objects.create(session=session, owner=ada, **fields)
    return session


@pytest.mark.django_db
def test_the_panel_shows_how_full_the_window_is_and_who_counted(reader: Client, worked: Session) -> None:
    html = page(reader, f"/s/{worked.pk}/panel/")
    assert 'role="meter"' in html
    assert 'aria-valuenow="25000"' in html
    assert "<strong>25 %</strong> · 25\u202f000 of 100\u202f000 tokens" in html
    assert "counted by the vendor" not in html
    assert "Weave." in html


@pytest.mark.django_db
def test_the_panel_is_correct_while_a_program_waits_for_its_first_answer(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Hello?", source="relay")
    Exchange.objects.create(session=session, owner=ada, model="m1")
    assert "No model has answered yet." in page(reader, f"/s/{session.pk}/panel/")


@pytest.mark.django_db
def test_where_replies_are_not_kept_the_panel_says_so_and_what_the_last_call_read(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Hello?", source="relay")
    now, usage = timezone.now(), {"input_tokens": 900, "output_tokens": 100, "source": "provider"}
    Exchange.objects.create(session=session, owner=ada, ended_at=now, end_reason="done", usage=usage)
    html = page(reader, f"/s/{session.pk}/panel/")
    assert "No model has answered" not in html
    assert "The reply was not stored. This key records requests only." in html
    assert "1\u202f000 tokens" in html


def test_the_panel_says_where_the_time_went(worked: Session) -> None:
    (turn,) = panel_of(worked)["turns"]
    assert [(lane.name, lane.kind, lane.start, lane.width) for lane in turn.lanes] == [
        ("script", "model", 0, 40),
        ("sys_monitor", "tool", 40, 20),
        ("script", "model", 60, 40),
    ]
    assert turn.seconds == pytest.approx(2.5)


@pytest.mark.django_db
def test_what_was_answered_on_another_branch_took_no_time_of_the_turn_that_is_shown(worked: Session) -> None:
    beside = recorder.append(worked, model_output("Or so.", model="script"), after=2)
    now = timezone.now()
    fields = {"started_at": now, "ended_at": now, "end_reason": "done", "model": "script"}
    Exchange.objects.create(session=worked, owner=worked.owner, message_id=beside.message_id, **fields)
    (turn,) = panel_of(worked)["turns"]
    assert turn.seconds == pytest.approx(2.5)
    assert len(turn.lanes) == 3


@pytest.mark.django_db
def test_a_model_that_is_not_offered_here_has_a_count_and_no_gauge(reader: Client, worked: Session) -> None:
    process_state.set(registry.Router([]))
    html = page(reader, f"/s/{worked.pk}/panel/")
    assert 'role="meter"' not in html
    assert "25\u202f000 tokens" in html


@pytest.mark.django_db
def test_the_panel_of_a_long_session_asks_no_more_than_that_of_a_short_one(
    ada: Any, django_assert_max_num_queries: Any
) -> None:
    session = create_chat(ada, "one", *["so it goes on"] * 1_000)
    with django_assert_max_num_queries(7):
        panel_of(session)


@pytest.mark.django_db
def test_title_and_agent_are_set_in_the_panel(reader: Client, ada: Any) -> None:
    Agent.objects.get_or_create(name="weaver")
    session = create_chat(ada, "one")
    response = reader.post(f"/s/{session.pk}/settings/", {"title": "  The   loom ", "agent": "weaver"})
    assert response["Location"] == session.get_absolute_url()
    reader.post(f"/s/{session.pk}/settings/", {"title": " ", "agent": "unknown"})
    session.refresh_from_db()
    assert (session.title, session.agent) == ("The loom", "weaver")


# Server settings.


@pytest.mark.django_db
def test_texts_travel_compressed_and_pictures_do_not(reader: Client, ada: Any) -> None:
    packed = {"Accept-Encoding": "gzip"}
    response = reader.get(create_chat(ada, "one", "two").get_absolute_url(), headers=packed)
    assert response["Content-Encoding"] == "gzip"
    assert reader.get("/static/css/pages/chat.css", headers=packed)["Content-Encoding"] == "gzip"
    part = reader.get("/static/css/pages/chat.css", headers=packed | {"Range": "bytes=0-999"})
    assert part.status_code == 206
    assert "Content-Encoding" not in part
    picture = recorder.store_blob(b"\x89PNG\r\n\x1a\n" + b"\0" * 5_000, media_type="image/png")
    session = recorder.start_session(owner=ada)
    media = Media(media_type="image/png", sha256=picture, name="a.png", size=5_008)
    recorder.append(session, ModelInput(parts=(Text(text="look"), media)), after=0)
    assert "Content-Encoding" not in reader.get(f"/attachments/{session.pk}/{picture}", headers=packed)


@pytest.mark.django_db
def test_no_chat_page_has_inline_code_or_styles(reader: Client, worked: Session) -> None:
    for address in ("/", worked.get_absolute_url()):
        html = page(reader, address)
        for mark in ('style="', "<style", "<script>", "onclick", 'src="http'):
            assert mark not in html


@pytest.mark.django_db
def test_a_session_that_was_deleted_meanwhile_takes_no_word(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    Session.objects.filter(pk=session.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    assert reader.post(session.get_absolute_url(), {"text": "two"}).status_code == 404
    assert permissions.find(ada, session.pk, permissions.Purpose.LIST) is None


# Numbers.


def numbers(html: str) -> list[str]:
    return re.findall(r'class="permalink"[^>]*>#(\d*)</a>', html)


@pytest.mark.django_db
def test_the_messages_that_people_see_are_numbered_and_counted(reader: Client, ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    entries = [
        SystemInstructionSet(instruction="be brief", is_internal=True), model_input("load?"),
        model_output("", tool_request("c1")),
        tool_results(tool_result("c1")), model_input("listing", is_internal=True), model_output("3 %"),
    ]  # fmt: skip
    recorder.append_many(session, entries, after=0)
    html = page(reader, session)
    assert numbers(html) == ["1", "", "2", "3"], "a result is linked, and not numbered"
    assert "3 messages</span>" in html
    assert 'href="?at=2#m2" aria-label="Link to message 1"' in html, "links go by the number in the record"
    recorder.append(session, model_input("And now?"), after=2)
    beside = page(reader, f"/s/{session.pk}/?leaf=7")
    assert numbers(beside) == ["1", "2"]
    assert not re.search(r"\d messages</span>", beside), "the count is that of another branch"


@pytest.mark.django_db
def test_a_long_session_is_numbered_from_both_ends_and_in_the_middle(reader: Client, ada: Any) -> None:
    session = create_chat(ada, *[f"number {place}" for place in range(1, 81)])
    assert numbers(page(reader, session))[-1] == "80"
    assert numbers(page(reader, f"/s/{session.pk}/?after=10"))[0] == "11"
    assert "41" in numbers(page(reader, f"/s/{session.pk}/?at=41"))
    assert numbers(page(reader, f"/s/{session.pk}/?before=21"))[:2] == ["1", "2"]


async def test_a_command_names_a_message_by_the_number_on_the_page(talk: Talk) -> None:
    talk.scripted("Because.", "Now.")
    await talk.begin("Why?")
    await talk.until_ended()
    await talk.send("/current_time")  # with a result, which has no number
    await talk.send("And now?")
    await talk.until_ended()
    shown = [one.seq for one in await talk.messages() if one.kind in ("model_input", "model_output")]
    await talk.send("/rollback #5")
    assert await talk.head() == shown[4] == 6
    with pytest.raises(NotPossible, match="no message #9"):
        await talk.send("/fork #9")


# Who read it.


@pytest.mark.django_db
def test_the_head_names_who_read_the_session_until_its_owner_has_seen_it(
    reader: Client, ada: Any, bob: Any, staff: Any
) -> None:
    session = create_chat(ada, "Why?", "So.")
    assert "Read by" not in page(reader, session)
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "read_session"]))
    open_for_reading(type(staff).objects.get(pk=staff.pk), session, reason="ticket 7")
    assert f"Read by {staff}</button>" in page(reader, session)
    stranger = Client()
    stranger.force_login(bob)
    assert stranger.post(f"/s/{session.pk}/readings/seen/").status_code == 404
    stranger.force_login(staff)
    assert "Read by" not in page(stranger, session)
    assert stranger.post(f"/s/{session.pk}/readings/seen/").status_code == 404
    assert f"Read by {staff}</button>" in page(reader, session)
    assert reader.post(f"/s/{session.pk}/readings/seen/")["Location"] == f"/s/{session.pk}/#who-read"
    assert "Read by" not in page(reader, session)
    audit.record(READ, actor=staff.pk, session=session.pk, reason="ticket 8")
    assert f"Read by {staff}</button>" in page(reader, session)


# Answers that did not go well.


@pytest.mark.django_db
@pytest.mark.parametrize("nothing", ["", " \n", "\u200b\ufeff"])
def test_an_empty_answer_says_so_and_offers_another(reader: Client, ada: Any, nothing: str) -> None:
    session = create_chat(ada, "Why?")
    recorder.append(session, model_output(nothing), after=1)
    html = page(reader, session)
    assert "The model returned an empty answer." in html
    assert re.search(r'class="button compact"[^>]*"regenerate", "seq": 2', html)
    recorder.append(session, model_output("So."), after=2)
    assert page(reader, session).count("The model returned an empty answer.") == 1
    recorder.append(session, model_output("", tool_request("current_time")), after=3)
    assert page(reader, session).count("The model returned an empty answer.") == 1


async def test_the_output_of_a_typed_command_is_shown_openly(writer: AsyncClient, talk: Talk) -> None:
    response = await writer.post("/", {"text": "/current_time"})
    html = html_of(await writer.get(response["Location"]))
    assert re.search(r'<details class="tool" open>\s*<summary>\s*<code class="tool-name">current_time</code>', html)
    assert "Arguments" not in html


SECRET = "Incorrect API key provided: sk-proj-abc***xyz. Organization org-77."


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ({"kind": "authentication", "status": 401}, "Choose another model, or contact your administrator."),
        ({"kind": "rate_limit", "retry_after": 90.0}, "Too many requests in a short time. Try again in 2 minutes."),
        (
            {"kind": "rate_limit"},
            "Too many requests in a short time. Try again in a moment. You can also choose another model.",
        ),
        ({"kind": "context_length"}, "The conversation is too long for the model. Shorten the message, summarise"),
        ({"network": "unreachable"}, "Try again, or choose another model."),
        ({"kind": "not_found"}, "The provider does not offer this model at the moment. Choose another model."),
        ({"kind": "something of tomorrow"}, "The provider reported an error. Try again, or choose another model."),
        (None, "The provider reported an error. Try again, or choose another model."),
    ],
)
def test_a_user_reads_what_they_can_do_and_staff_what_to_set(
    reader: Client, ada: Any, failure: Any, words: str
) -> None:
    session = create_chat(ada, "Why?")
    metadata = {"failure": failure} if failure else {}
    failed = model_output("", status="failed", end_reason="upstream_error", error=SECRET, metadata=metadata)
    recorder.append(session, failed, after=1)
    html = page(reader, session)
    assert words in html
    assert "sk-proj" not in html
    assert "/providers/" not in html
    assert "upstream_error" not in html
    ada.is_staff = True
    ada.save()
    html = page(reader, session)
    assert SECRET in html
    assert 'href="/providers/">Check the providers</a>' in html


async def test_a_rate_limit_in_the_chat_reads_like_on_the_page_of_providers(
    writer: AsyncClient, talk: Talk, scripted: Scripted
) -> None:
    scripted([AnswerFailed(message="Rate limit reached for org-77", kind="rate_limit", status=429)])
    session = await talk.begin("Why?")
    await talk.until_ended()
    html = html_of(await writer.get(session.get_absolute_url()))
    assert "Too many requests in a short time. Try again in a moment." in html
    assert "org-77" not in html


@pytest.mark.django_db
def test_a_program_keeps_the_words_of_its_provider(reader: Client, ada: Any) -> None:
    session = recorder.start_session(owner=ada, source=Session.Source.RELAY)
    recorder.append(session, model_input("Why?"), after=0)
    failed = model_output("", status="failed", end_reason="upstream_error", error="max_tokens is too large")
    recorder.append(session, failed, after=1)
    assert "max_tokens is too large" in page(reader, session)


@pytest.mark.django_db
def test_an_answer_that_its_reader_stopped_says_so(reader: Client, ada: Any) -> None:
    session = create_chat(ada, "Why?")
    recorder.append(session, model_output("Beca", status="interrupted", end_reason="stopped"), after=1)
    assert "You stopped this answer." in page(reader, session)


async def test_a_live_answer_of_the_demo_model_says_that_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "SERVER", local.LocalServer())  # another test may have started the one of this process
    reader = ViewerLocale("en", "UTC")
    waiting = AnswerCursor(uuid4(), exchange="e", n=1, label=f"local/{MODEL_NAME}")
    assert "The demo model is starting." in fragments.live_answer(waiting, reader)
    await waiting.apply({"n": 2, "pieces": [["text", "t", "Hello"]]})
    assert "demo model" not in fragments.live_answer(waiting, reader)
    assert "demo model" not in fragments.live_answer(AnswerCursor(uuid4(), exchange="e", n=1, label="a/b"), reader)
