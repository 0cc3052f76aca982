"""Layout of the apps: what lies at the top, which packages import which, unique class names."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict

import pytest

from tests.architecture.source_tree import APPS, ROOT, modules, package_imports

pytestmark = pytest.mark.any_database

# What Django looks for at the top of an app. Migrations import `fields`.
TOP = {
    "project": {"asgi", "settings", "urls", "views"},
    "relay": {"apps", "routing", "urls"},
    "history": {"apps", "fields", "urls"},
}
# Django's own names, which every app has.
REPEATED_NAMES = {"Command", "Meta", "Migration"}


@pytest.mark.parametrize("app", APPS)
def test_the_top_of_an_app_holds_only_what_django_looks_for(app: str) -> None:
    assert {path.stem for path in (ROOT / app).glob("*.py")} - {"__init__"} == TOP[app]


def test_no_two_packages_import_each_other() -> None:
    pairs = package_imports()
    mutual = {(one, other) for one, other in pairs if one < other and (other, one) in pairs}
    assert mutual == set()


@pytest.mark.parametrize("app", APPS)
def test_every_package_has_its_layer_in_the_contract(app: str) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [contract] = [found for found in contracts if found.get("containers") == [app]]
    listed = {name.strip() for layer in contract["layers"] for name in layer.split(":")}
    packages = {path.parent.name for path in (ROOT / app).glob("*/__init__.py")} - {"migrations"}
    assert listed == packages


@pytest.mark.parametrize("app", APPS)
def test_a_public_class_name_is_used_once_in_an_app(app: str) -> None:
    places = defaultdict(list)
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and module.split(".")[0] == app:
                places[node.name].append(module)
    repeated = {name: found for name, found in places.items() if len(found) > 1 and name not in REPEATED_NAMES}
    assert repeated == {}


def test_templates_name_no_url_of_a_higher_app() -> None:
    upward = {
        str(path.relative_to(ROOT / "templates"))
        for path in (ROOT / "templates" / "history").rglob("*.html")
        if re.search(r"""url\s+['"](?:relay|accounts|help):""", path.read_text(encoding="utf-8"))
    }
    assert upward == set()
