"""Every text that people can see is there in both languages."""

from pathlib import Path

import polib
import pytest
from django.conf import settings

from project.management.commands.messages import CATALOGUE
from project.translations.extract import Text, missing_from, texts_in, texts_of_python, texts_of_template, unused_in

ROOT = Path(settings.BASE_DIR)


@pytest.fixture(scope="module")
def catalogue() -> polib.POFile:
    return polib.pofile(str(ROOT / CATALOGUE))


@pytest.fixture(scope="module")
def texts() -> list[Text]:
    """All that are in the code and in the templates."""
    return texts_in(ROOT)


def test_every_text_has_a_chinese_translation(catalogue: polib.POFile, texts: list[Text]) -> None:
    missing = [f"{text.singular!r} in {sorted(text.places)}" for text in missing_from(catalogue, texts)]
    assert missing == [], "run `make messages` and translate what is new"


def test_no_translation_is_left_over(catalogue: polib.POFile, texts: list[Text]) -> None:
    assert unused_in(catalogue, texts) == [], "run `make messages`"


def test_the_compiled_file_is_in_step(catalogue: polib.POFile) -> None:
    def content(file: polib.POFile | polib.MOFile) -> dict[tuple[str, str], object]:
        return {(entry.msgid, entry.msgctxt or ""): entry.msgstr_plural or entry.msgstr for entry in file}

    compiled = polib.mofile(str((ROOT / CATALOGUE).with_suffix(".mo")))
    assert content(compiled) == content(catalogue), "run `make messages`"


def test_placeholders_survive_translation(catalogue: polib.POFile) -> None:
    import re

    for entry in catalogue:
        wanted = set(re.findall(r"%\(\w+\)[sd]", entry.msgid))
        for translated in [entry.msgstr, *entry.msgstr_plural.values()]:
            assert not translated or set(re.findall(r"%\(\w+\)[sd]", translated)) == wanted, entry.msgid


@pytest.mark.parametrize(
    ("template", "texts"),
    [
        ('{% load i18n %}{% translate "One" %}', [Text("One")]),
        (
            "{% load i18n %}{% blocktranslate %}Hello, {{ name }} (you){% endblocktranslate %}",
            [Text("Hello, %(name)s (you)")],
        ),
        (
            "{% load i18n %}{% blocktranslate count n=x %}one{% plural %}many{% endblocktranslate %}",
            [Text("one", "many")],
        ),
        ('{% load i18n %}{% translate "May" context "month" %}', [Text("May", context="month")]),
        ('{% load i18n %}{% firstof x _("Untitled") %}', [Text("Untitled")]),
    ],
)
def test_texts_are_found_in_templates(template: str, texts: list[Text]) -> None:
    assert list(texts_of_template(template)) == texts


def test_texts_are_found_in_python() -> None:
    source = '_("a" "b"); x.gettext_lazy("c"); ngettext("d", "e", 2); pgettext("f", "g"); other("h"); _(name)'
    assert set(texts_of_python(source)) == {Text("ab"), Text("c"), Text("d", "e"), Text("g", context="f")}
