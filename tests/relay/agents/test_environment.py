"""What a model is told besides the conversation: notebook, surroundings, live screen. Written down, not stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from history.context.values import ContextOptions
from history.models import Exchange
from relay.agents import requests
from relay.agents.requests import MOST_LINES, FolderNotAllowed, list_folder, list_folders, resolve_folder
from relay.conversation import NotPossible
from relay.models import Agent
from relay.runtime.async_db import in_database
from relay.tools.built_in import notebooks
from tests.factories import inputs_of
from tests.relay.conftest import Talk


def inputs() -> dict[str, Any]:
    return dict(inputs_of(Exchange.objects.latest("started_at")))


async def test_the_notebook_is_told_and_the_exchange_names_its_version(talk: Talk) -> None:
    agent = await talk.agent(instruction="Be brief.")
    book = await in_database(notebooks.write, talk.user, agent.name, "Likes tea.", seen=0)
    provider = talk.scripted("Tea?", "More tea?")
    await talk.begin("What do I like?")
    await talk.until_ended()
    assert provider.calls[0].context.system == "Be brief.\n\n[Memory Notebook]\nLikes tea."
    used = await in_database(inputs)
    assert used["notebook"] == {"session": str(book.session_id), "version": book.version}
    await in_database(notebooks.write, talk.user, agent.name, "Likes coffee.", seen=book.version)
    await talk.send("And now?")
    await talk.until_ended()
    assert provider.calls[1].context.system.endswith("Likes coffee.")
    assert not any("Likes" in entry.text for entry in await talk.entries()), "the notebook is in the context only"
    # What the first call was told can still be had.
    first = await in_database(lambda: inputs_of(Exchange.objects.earliest("started_at")))
    assert ContextOptions.from_json(first["context"]).notebook == "Likes tea."


async def test_the_environment_comes_first_in_the_context_and_is_not_stored(
    talk: Talk, tmp_path: Path, settings: Any
) -> None:
    settings.PARLEY_FOLDERS = [tmp_path]
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "engine.py").write_text("")
    agent = await talk.agent(environment=True, folders=[str(tmp_path)], instruction="Be brief.")
    await in_database(notebooks.write, talk.user, agent.name, "Likes tea.", seen=0)
    provider = talk.scripted("Hello.", "Again.")
    await talk.begin("Hello?")
    await talk.until_ended()
    context = provider.calls[0].context
    opening = context.entries[0].content
    assert opening.startswith("This is Parley. We are setting up the context for our chat.\nToday's date is ")
    assert "My operating system is: linux" in opening or "My operating system is: " in opening
    assert "src/\n    engine.py" in opening
    assert "[Memory Notebook]\nLikes tea." in opening
    assert opening.endswith("My setup is complete. I will provide my first command in the next turn.")
    assert context.system == "Be brief.", "the notebook is told once"
    (tmp_path / "later.txt").write_text("")
    await talk.send("And now?")
    await talk.until_ended()
    again = provider.calls[1].context.entries
    assert "later.txt" in again[0].content
    assert sum("This is Parley." in entry.content for entry in again) == 1
    assert [words for _, words in await talk.texts()] == ["Hello?", "Hello.", "And now?", "Again."]


async def test_a_live_screen_rides_on_the_latest_input_and_is_written_down_with_the_call(talk: Talk) -> None:
    await talk.agent(tools=["sys_monitor"], live_screen=True)
    provider = talk.scripted("Busy.", "Still busy.")
    await talk.begin("How is the server?")
    await talk.until_ended()
    await talk.send("And now?")
    await talk.until_ended()
    screens = [entry.live_screen for entry in provider.calls[1].context.entries]
    assert screens[:-1] == [None] * (len(screens) - 1)
    assert screens[-1] is not None
    assert screens[-1].startswith("sys_monitor\nCPU ")
    assert (await in_database(inputs))["context"]["live_screen"] == screens[-1]


async def test_without_being_asked_for_there_is_no_screen_and_no_surroundings(talk: Talk) -> None:
    await talk.agent(tools=["sys_monitor"])
    provider = talk.scripted("Hello.")
    await talk.begin("Hello?")
    await talk.until_ended()
    assert [entry.live_screen for entry in provider.calls[0].context.entries] == [None]
    assert "notebook" not in await in_database(inputs)


async def test_context_add_tells_the_agent_of_a_folder_and_of_no_other(
    talk: Talk, tmp_path: Path, settings: Any
) -> None:
    (inside := tmp_path / "inside").mkdir()
    (inside / "notes.txt").write_text("")
    settings.PARLEY_FOLDERS = [inside]
    provider = talk.scripted("Hello.", "Notes.")
    await talk.begin("Hello?")
    await talk.until_ended()
    sent = await talk.send(f"/context add {inside}")
    assert str(inside) in sent.words
    await talk.send("What is there?")
    await talk.until_ended()
    assert any("notes.txt" in entry.content for entry in provider.calls[1].context.entries)
    for outside in (tmp_path, inside / "..", inside / "missing", "/etc", "no/such"):
        with pytest.raises(NotPossible, match="not an allowed folder"):
            await talk.send(f"/context add {outside}")


def test_a_link_does_not_lead_out_of_the_root(tmp_path: Path, settings: Any) -> None:
    settings.PARLEY_FOLDERS = [tmp_path / "root"]
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "root" / "way_out").symlink_to(tmp_path / "secret")
    (tmp_path / "secret" / "key").write_text("")
    with pytest.raises(FolderNotAllowed):
        resolve_folder(str(tmp_path / "root" / "way_out"))
    assert "key" not in list_folder(resolve_folder(str(tmp_path / "root")))


def test_a_listing_stays_short_and_shows_the_uppermost_first(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for number in range(MOST_LINES + 50):
        (tmp_path / "deep" / f"{number:03}").write_text("")
    (tmp_path / "top").write_text("")
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "a\nb").write_text("")
    lines = list_folder(tmp_path).splitlines()
    assert lines[-1] == "… and more"
    assert len(lines) <= MOST_LINES + 2
    assert "  top" in lines
    assert not any("hidden" in line for line in lines)


def test_several_folders_come_in_their_order_and_what_may_not_be_listed_is_left_out(
    tmp_path: Path, settings: Any
) -> None:
    settings.PARLEY_FOLDERS = [tmp_path]
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    told = list_folders([str(tmp_path / "b"), "/etc", str(tmp_path / "a"), str(tmp_path / "b")])
    assert told == [f"{tmp_path / 'b'}/", f"{tmp_path / 'a'}/"]


def test_a_panel_that_fails_costs_a_line_and_not_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"

        def panel(self, context: Any) -> str:
            raise RuntimeError

    monkeypatch.setattr(requests, "toolbox", lambda names: {"broken": Broken()})
    screen = requests.live_screen(None, Agent(live_screen=True))  # type: ignore[arg-type]
    assert screen.startswith("broken\n")
    assert "not available" in screen


def test_the_date_is_told_as_its_reader_writes_it(ada: Any) -> None:
    ada.language, ada.time_zone = "en", "Pacific/Kiritimati"
    assert requests.local_date(ada).count(",") == 2
