"""Bundles hold every style sheet and script of their pages, in order, and fall back to single files."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from django.conf import settings as live_settings
from django.template import Context, Template
from django.test import Client
from pytest_django.fixtures import Settings

from project.server.bundles import BUNDLES, join
from project.server.static_files import collect_when_changed

SOURCE = Path(live_settings.BASE_DIR) / "static"
TEMPLATES = Path(live_settings.BASE_DIR) / "templates"


@pytest.fixture
def collected(settings: Settings, tmp_path: Path) -> Path:
    """A folder of collected files, without those of Django's admin."""
    (tmp_path / "static").mkdir()
    settings.PARLEY_DATA_DIR = tmp_path
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    assert collect_when_changed()
    return tmp_path / "static"


def rendered(name: str) -> list[str]:
    html = Template(f'{{% bundle "{name}" %}}').render(Context())
    return re.findall(r'(?:href|src)="/static/([^"]+)"', html)


def test_every_file_of_a_bundle_exists_once() -> None:
    for name, paths in BUNDLES.items():
        assert len(set(paths)) == len(paths)
        assert [path for path in paths if not (SOURCE / path).is_file()] == [], name
        assert {Path(path).suffix for path in paths} == {Path(name).suffix}


def test_every_bundle_is_used_and_every_used_bundle_exists() -> None:
    used = {
        name for path in TEMPLATES.rglob("*.html") for name in re.findall(r'{% bundle "(.+?)" %}', path.read_text())
    }
    assert used == BUNDLES.keys()


def test_styles_and_modules_can_be_joined() -> None:
    """Relative addresses, imports and exports would break in a joined file."""
    for path in {path for paths in BUNDLES.values() for path in paths}:
        text = (SOURCE / path).read_text()
        if path.endswith(".css"):
            assert not re.search(r"@import|@charset|url\((?!data:|#)", text), path
        elif path.startswith("js/"):
            assert not re.search(r"^(import|export)\b|\bimport\.meta\b|^await\b", text, re.MULTILINE), path


def test_without_collected_files_a_page_gets_the_single_files() -> None:
    assert rendered("shared.css") == list(BUNDLES["shared.css"])
    html = Template('{% bundle "signed-out.js" %}').render(Context())
    assert '<script src="/static/vendor/htmx.min.js" defer></script>' in html
    assert '<script type="module" src="/static/js/request_errors.js"></script>' in html


def test_collected_files_are_one_bundle_with_a_hash_in_its_name(collected: Path) -> None:
    [name] = rendered("chat.css")
    assert re.fullmatch(r"bundles/chat\.[0-9a-f]{12}\.css", name)
    text = (collected / name).read_text()
    places = [text.index((SOURCE / path).read_text().strip()) for path in BUNDLES["chat.css"]]
    assert places == sorted(places)
    assert gzip.decompress((collected / f"{name}.gz").read_bytes()).decode() == text


def test_with_debug_a_page_gets_the_single_files(collected: Path, settings: Settings) -> None:
    settings.DEBUG = True
    assert rendered("shared.css") == list(BUNDLES["shared.css"])


def test_a_bundle_changes_its_name_with_one_of_its_files(collected: Path, settings: Settings, tmp_path: Path) -> None:
    before = rendered("signed-out.js")
    changed = tmp_path / "source" / "js" / "request_errors.js"
    changed.parent.mkdir(parents=True)
    changed.write_text("// changed")
    settings.STATICFILES_DIRS = [tmp_path / "source", SOURCE]
    assert collect_when_changed()
    after = rendered("signed-out.js")
    assert before != after
    assert "// changed" in (collected / after[0]).read_text()


def test_each_module_keeps_its_names_and_its_errors_to_itself() -> None:
    texts = {"vendor/htmx.min.js": "var htmx = 1", "js/request_errors.js": "const a = 1;"}
    assert join("signed-out.js", texts.__getitem__) == (
        "/* vendor/htmx.min.js */\nvar htmx = 1\n;\n"
        '/* js/request_errors.js */\ntry {\n(() => {\n"use strict";\nconst a = 1;\n})();\n'
        "} catch (error) {\nreportError(error);\n}\n"
    )


@pytest.mark.django_db
def test_a_page_that_is_signed_out_links_one_style_sheet_and_one_script(client: Client, collected: Path) -> None:
    html = client.get("/accounts/signin/").content.decode()
    assert html.count('<link rel="stylesheet"') == html.count("<script") == 1
