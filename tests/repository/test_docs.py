"""What people can set, open and run is written down."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.urls import URLPattern, URLResolver, get_resolver

from project.settings import env

ROOT = Path(settings.BASE_DIR)
DOCS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md")))
OUR_APPS = ("project", "history", "relay")


def addresses(patterns: list[URLPattern | URLResolver], before: str = "/") -> Iterator[str]:
    for pattern in patterns:
        address = before + str(pattern.pattern).removeprefix("^").removesuffix("$")
        if isinstance(pattern, URLResolver):
            # The admin's own addresses are Django's to describe.
            yield from [address] if address.startswith("/admin/") else addresses(pattern.url_patterns, address)
        else:
            # The API's addresses work with and without a slash at the end, and are told once.
            address = address.removesuffix("/") if address.startswith("/api/") else address
            yield re.sub(r"<(?:\w+:)?(\w+)>", r"<\1>", address)


@pytest.mark.parametrize("name", sorted(set(env.names)))
def test_every_setting_is_in_the_example_file_and_in_the_docs(name: str) -> None:
    assert re.search(rf"^#? ?{name}=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"`{name}`" in DOCS


def test_the_example_file_names_no_unused_setting() -> None:
    named = re.findall(r"^#? ?([A-Z][A-Z_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(named) == set(env.names)
    assert len(named) == len(set(named))


@pytest.mark.parametrize("address", sorted(set(addresses(get_resolver().url_patterns))))
def test_every_address_is_in_the_docs(address: str) -> None:
    assert f"`{address}`" in DOCS


@pytest.mark.parametrize("command", sorted(name for name, app in get_commands().items() if app in OUR_APPS))
def test_every_command_is_in_the_docs(command: str) -> None:
    assert f"manage.py {command}" in DOCS


def test_every_make_target_of_the_docs_exists() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    texts = (
        DOCS + (ROOT / "README.md").read_text(encoding="utf-8") + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    )
    assert set(re.findall(r"`make ([a-z]+)", texts)) <= set(targets)


def test_every_link_between_documents_leads_somewhere() -> None:
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose):
            assert (path.parent / target).exists(), f"{path.name} points to {target}"


def test_every_pinned_dependency_of_ours_has_its_reason() -> None:
    wanted = re.findall(
        r"^([a-zA-Z][\w-]*)",
        "".join((ROOT / name).read_text() for name in ("requirements.in", "requirements-dev.in")),
        re.MULTILINE,
    )
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").lower()
    assert [name for name in wanted if f"| {name.lower()} |" not in reasons] == []


@pytest.mark.parametrize("client", ["codex", "gemini-cli"])
def test_pages_of_large_clients_say_that_the_demo_model_is_too_small(client: str) -> None:
    page = (ROOT / f"docs/clients/{client}.md").read_text(encoding="utf-8")
    assert re.search(r"about [\d,]+ tokens.*\(\.\./providers\.md#the-demo-model\)", page)


def test_the_page_of_gemini_cli_has_the_setting_that_its_first_start_needs() -> None:
    page = (ROOT / "docs/clients/gemini-cli.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert json.loads(block)["security"]["auth"]["selectedType"] == "gemini-api-key"
