"""Agents as TOML files: written, read, refused with reasons; by the command and in the admin."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from project.accounts.models import User
from relay.agents import files
from relay.agents.files import InvalidAgentFile
from relay.models import Agent

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

EVERYTHING: dict[str, Any] = {
    "name": "researcher",
    "label": "Researcher",
    "instruction": 'Look it up.\n\n"""Quote""" it, \\ and 引用 it.\n',
    "model": "openai/large",
    "planner_model": "anthropic/thoughtful",
    "reviewer_model": "gemini/strict",
    "tools": ["search_history", "current_time"],
    "agents": ["writer"],
    "max_steps": 7,
    "max_turns": 9,
    "max_answer_tokens": 1000,
    "max_turn_tokens": 50_000,
    "temperature": 0.5,
    "reasoning_effort": "high",
    "compress_at": 0.7,
    "keep_turns": 3,
    "environment": True,
    "folders": ["/srv/projects"],
    "live_screen": True,
}


@pytest.fixture(autouse=True)
def _only_these() -> None:
    Agent.objects.all().delete()


def fields_of(agent: Agent) -> dict[str, Any]:
    return {name: getattr(agent, name) for name in EVERYTHING}


def reasons(text: str) -> str:
    with pytest.raises(InvalidAgentFile) as refused:
        files.parse_agent(text.encode())
    return str(refused.value)


def manage(*words: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("agents", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


class TestFiles:
    def test_every_field_has_its_place_in_the_file_but_who_answers_by_default(self) -> None:
        fields = {field.name for field in Agent._meta.concrete_fields if not field.primary_key}
        assert set(files.PLACES) == fields - {"is_default"} == set(EVERYTHING)

    @pytest.mark.parametrize("instruction", [EVERYTHING["instruction"], "one\r\ntwo\r\n", " \n'''\t", ""])
    def test_what_was_written_is_read_as_it_was(self, instruction: str) -> None:
        Agent.objects.create(name="writer")
        agent = Agent(**EVERYTHING | {"instruction": instruction})
        found, remarks = files.parse_agent(files.agent_to_toml(agent).encode())
        assert fields_of(found) == fields_of(agent)
        assert remarks == []

    def test_what_is_left_out_is_as_in_a_new_agent_and_what_is_empty_is_left_out(self) -> None:
        found, _remarks = files.parse_agent(b'name = "plain"')
        assert fields_of(found) == fields_of(Agent(name="plain"))
        assert files.agent_to_toml(found) == 'name = "plain"\n\n[limits]\nmax_steps = 12\n'

    def test_unknown_fields_are_named_and_the_rest_is_used(self) -> None:
        known = b'name = "a"\ntools = ["shell", "current_time"]\nagents = ["b"]\n'
        found, remarks = files.parse_agent(b'mood = "good"\n' + known + b"[limits]\nmax_fun = 3\n[extra]\n")
        assert found.tools == ["shell", "current_time"]
        told = "\n".join(remarks)
        assert [word in told for word in ("mood", "limits.max_fun", "extra", "shell", "no agent b")] == [True] * 5

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("name =", "not valid TOML"),
            ("label = 'x'", "name:"),
            ("name = 'two words'", "name:"),
            ("name = 3", "name: expected a string"),
            ("name = 'a'\ntools = 'current_time'", "tools: expected a list of strings"),
            ("name = 'a'\nmodels = 'large'", "models: expected a table"),
            ("name = 'a'\n[limits]\nmax_steps = '7'", "limits.max_steps: expected a whole number"),
            ("name = 'a'\n[limits]\nmax_steps = -1", "limits.max_steps:"),
            ("name = 'a'\n[limits]\nmax_steps = true", "limits.max_steps: expected a whole number"),
            ("name = 'a'\n[compression]\ncompress_at = 7.5", "compression.compress_at:"),
            ("name = 'a'\n[models]\ntemperature = nan", "models.temperature: expected a number"),
            ('name = "a"\ninstruction = "\\u0000"', "instruction: expected a string"),
        ],
    )
    def test_what_is_wrong_is_refused_and_the_place_is_named(self, text: str, told: str) -> None:
        assert told in reasons(text)

    def test_everything_that_is_wrong_is_said_at_once(self) -> None:
        assert len(reasons("name = 3\n[limits]\nmax_steps = 'x'\nmax_turns = 1.5").splitlines()) == 3


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidAgentFile, match="UTF-8"):
        files.parse_agent(b"\xff")


class TestCommand:
    def test_an_agent_goes_into_a_file_and_comes_back(self, tmp_path: Path) -> None:
        Agent.objects.create(name="writer")
        Agent.objects.create(**EVERYTHING, is_default=True)
        file = tmp_path / "researcher.toml"
        manage("export", "researcher", "--output", str(file))
        assert manage("export", "researcher")[0] == file.read_text(encoding="utf-8")
        Agent.objects.filter(name="researcher").delete()
        assert manage("import", str(file)) == ("Agent researcher imported.\n", "")
        assert fields_of(Agent.objects.get(name="researcher")) == EVERYTHING

    def test_one_that_is_here_is_changed_only_on_request_and_stays_the_default(self, tmp_path: Path) -> None:
        Agent.objects.create(name="a", label="Before", is_default=True)
        file = tmp_path / "a.toml"
        file.write_text('name = "a"\nlabel = "After"\nmood = 1\n')
        with pytest.raises(CommandError, match="already exists"):
            manage("import", str(file))
        assert Agent.objects.get().label == "Before"
        assert "mood" in manage("import", str(file), "--replace")[1]
        agent = Agent.objects.get()
        assert (agent.label, agent.is_default) == ("After", True)

    def test_what_cannot_be_done_ends_with_a_reason(self, tmp_path: Path) -> None:
        (tmp_path / "bad.toml").write_text("name = 3")
        for words, told in (
            (["export", "unknown"], "no agent unknown"),
            (["import", str(tmp_path / "nothing.toml")], "cannot be read"),
            (["import", str(tmp_path / "bad.toml")], "name: expected a string"),
        ):
            with pytest.raises(CommandError, match=told) as refused:
                manage(*words)
            assert refused.value.returncode == 1

    def test_programs_get_json(self) -> None:
        Agent.objects.create(name="a", tools=["current_time"])
        assert [agent["name"] for agent in json.loads(manage("list", "--json")[0])] == ["a"]
        assert json.loads(manage("export", "a", "--json")[0])["toml"].startswith('name = "a"')
        assert manage("list")[0].splitlines()[1].split() == ["a", "current_time"]


class TestAdmin:
    @pytest.fixture
    def admin(self, client: Client, admin_user: User) -> Client:
        client.force_login(admin_user)
        return client

    def give(self, admin: Client, text: str, **more: str) -> str:
        file = SimpleUploadedFile("a.toml", text.encode())
        return admin.post("/admin/relay/agent/import/", {"file": file, **more}, follow=True).content.decode()

    def test_an_agent_is_taken_along_by_a_button_and_brought_in_by_another(self, admin: Client) -> None:
        Agent.objects.create(name="writer")
        agent = Agent.objects.create(**EVERYTHING)
        assert f"/admin/relay/agent/{agent.pk}/export/" in admin.get(f"/admin/relay/agent/{agent.pk}/change/").text
        assert "/admin/relay/agent/import/" in admin.get("/admin/relay/agent/").text
        file = admin.get(f"/admin/relay/agent/{agent.pk}/export/")
        assert file.headers["Content-Disposition"] == 'attachment; filename="researcher.toml"'
        agent.delete()
        assert "imported" in self.give(admin, file.content.decode())
        assert fields_of(Agent.objects.get(name="researcher")) == EVERYTHING

    def test_a_bad_file_and_one_that_would_replace_an_agent_are_refused_beside_the_field(self, admin: Client) -> None:
        Agent.objects.create(name="a", label="Before")
        assert "limits.max_steps: expected a whole number" in self.give(admin, "name = 'b'\n[limits]\nmax_steps = 'x'")
        assert "already exists" in self.give(admin, "name = 'a'\nlabel = 'After'")
        assert Agent.objects.get().label == "Before"
        page = self.give(admin, "name = 'a'\nlabel = 'After'\nmood = 'good'", replace="on")
        assert "Mood is unknown" in page
        assert Agent.objects.get().label == "After"

    def test_a_user_who_may_only_view_exports_but_does_not_import(self, client: Client, bob: User) -> None:
        agent = Agent.objects.create(name="a")
        User.objects.filter(pk=bob.pk).update(is_staff=True)
        bob.user_permissions.add(Permission.objects.get(codename="view_agent"))
        client.force_login(bob)
        assert client.get(f"/admin/relay/agent/{agent.pk}/export/").status_code == 200
        assert client.get("/admin/relay/agent/import/").status_code == 403
        bob.user_permissions.clear()
        assert client.get(f"/admin/relay/agent/{agent.pk}/export/").status_code == 403
