"""Every text that people can see is there in both languages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polib
import pytest

from tests.servers.processes import ROOT

pytestmark = pytest.mark.no_database

CATALOGUE = Path("locale", "zh_Hans", "LC_MESSAGES", "django.po")
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]")


@pytest.fixture(scope="module")
def catalogue() -> polib.POFile:
    return polib.pofile(str(ROOT / CATALOGUE))


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> polib.POFile:
    """The catalogue as `make messages` would write it, made beside the one of the repository."""
    if shutil.which("xgettext") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("gettext is not installed: apt-get install gettext")
        pytest.skip("gettext is not installed")
    folder = tmp_path_factory.mktemp("messages")
    for name in ("project", "relay", "history", "templates"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "locale", folder / "locale")
    command = [sys.executable, str(ROOT / "manage.py"), "makemessages", "--symlinks", *_options()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return polib.pofile(str(folder / CATALOGUE))


def _options() -> list[str]:
    found = re.search(r"^MESSAGES = (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1].split()


def test_every_text_has_a_chinese_translation(collected: polib.POFile) -> None:
    missing = [entry.msgid for entry in collected if not entry.translated() or "fuzzy" in entry.flags]
    assert missing == [], "run `make messages` and translate what is new"


def test_the_catalogue_has_the_texts_of_the_code(catalogue: polib.POFile, collected: polib.POFile) -> None:
    known, used = ({(entry.msgid, entry.msgctxt) for entry in file} for file in (catalogue, collected))
    assert known == used, "run `make messages`"


def test_the_compiled_file_is_in_step(catalogue: polib.POFile) -> None:
    def content(file: polib.POFile | polib.MOFile) -> dict[tuple[str, str], object]:
        return {(entry.msgid, entry.msgctxt or ""): entry.msgstr_plural or entry.msgstr for entry in file}

    compiled = polib.mofile(str((ROOT / CATALOGUE).with_suffix(".mo")))
    assert content(compiled) == content(catalogue), "run `make messages`"


def test_placeholders_survive_translation(catalogue: polib.POFile) -> None:
    for entry in catalogue:
        wanted = set(PLACEHOLDER.findall(entry.msgid))
        for translated in [entry.msgstr, *entry.msgstr_plural.values()]:
            assert not translated or set(PLACEHOLDER.findall(translated)) == wanted, entry.msgid


def test_no_text_is_inside_an_f_string() -> None:
    """xgettext does not read them there."""
    inside = re.compile(r"""f["'].*\{(?:_|n?p?gettext(?:_lazy)?)\(""")
    paths = [path for app in ("project", "relay", "history") for path in (ROOT / app).rglob("*.py")]
    assert [str(path) for path in paths if inside.search(path.read_text(encoding="utf-8"))] == []
