"""The cache of fragments, and that the key of each cached fragment holds everything that it shows, in all templates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.template import Context, Template, engines
from django.template.base import FilterExpression, Node, NodeList, Token, TokenType, Variable
from django.template.defaulttags import CsrfTokenNode, ForNode, IfNode, WithNode
from django.template.loader_tags import IncludeNode
from django.template.smartif import TokenBase
from django.utils import timezone, translation
from django.utils.safestring import SafeString

from history.templatetags.fragments import CachedNode, FragmentCache, fragments

FOLDER = Path(settings.BASE_DIR) / "templates"
TEMPLATES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.html"))
ENTRIES = [name for name in TEMPLATES if name.startswith("history/entries/")]
# What of an object a filter, a property or a tag reads.
READS = {
    "origin": ("source", "client"),
    "get_absolute_url": ("pk",),
    "tokens": ("input_tokens", "output_tokens"),
    "api_key": ("api_key_id",),
    "entry_action_urls": ("pk",),
    "attachment_url": ("pk",),
    "advice_for": ("source",),
}
VERBS = ("sees", "reads", "deletes")
# A row whose advice depends on more has no key.
STANDS_FOR = {
    "row.cache_key": {"row", "user"},
    "browse.viewer_key": {"user.pk", "browse.query.archived", *(f"browse.{verb}_others" for verb in VERBS)},
}
# Only `include … with` inside a fragment sets these.
INNER = {"oob", "undated", "found_by_title", "may_come", "is_bad", "text_path", "seq", "path", "is_message_text"}
LOCAL = "(local)"


class Usage:
    """The variables that a fragment reads and its key does not hold."""

    def __init__(self, fragment: CachedNode) -> None:
        self.covered: set[str] = set()
        self.missing: set[str] = set()
        for part in fragment.parts:
            path = str(part.var.var if isinstance(part.var, Variable) else part.var)
            names = [args[0][1] for func, args in part.filters if _name(func) == "fields"]
            self.covered |= {f"{path}.{name}" for name in names[0].split()} if names else {path}
            self.covered |= STANDS_FOR.get(path, set())
        self.read(fragment.nodelist, {})

    def read(self, nodes: NodeList, names: dict[str, str]) -> None:
        for node in nodes:
            self.read_node(node, names)

    def read_node(self, node: Node, names: dict[str, str]) -> None:
        inner, tag = dict(names), getattr(getattr(node, "func", None), "__name__", "")
        assert not isinstance(node, CsrfTokenNode), "a token must not be cached"
        aliases = [one for one in getattr(node, "extra_context", {}).values() if not one.filters]
        for expression in _expressions(node):
            if expression not in aliases:
                self.use(expression, names, tag)
        if isinstance(node, IncludeNode | WithNode) or hasattr(node, "extra_context"):
            for name, expression in node.extra_context.items():
                inner[name] = _path(expression, names) if not expression.filters else LOCAL
        if isinstance(node, ForNode):
            inner |= dict.fromkeys([*node.loopvars, "forloop"], LOCAL)
        for token in [*getattr(node, "singular", []), *getattr(node, "plural", [])]:
            if isinstance(token, Token) and token.token_type == TokenType.VAR:
                root = token.contents.split(".")[0]
                counted = {getattr(node, "countervar", None)}
                self.check(LOCAL if root in counted else inner.get(root, token.contents))
        for nodes in _inside(node):
            self.read(nodes, inner if not isinstance(node, IfNode) else names)
        for name in ("asvar", "target_var"):
            if getattr(node, name, None):
                names[getattr(node, name)] = LOCAL

    def use(self, expression: FilterExpression, names: dict[str, str], tag: str) -> None:
        path = _path(expression, names)
        last = path.rpartition(".")[2]
        read_by = [_name(func) for func, _args in expression.filters] + [tag]
        reader = next((name for name in read_by if name in READS), "")
        if reader and path.rpartition(".")[2] == "session":
            self.check(*(f"{path}.{name}" for name in READS[reader]))
        elif last in READS:
            self.check(*(f"{path.rpartition('.')[0]}.{name}" for name in READS[last]))
        else:
            self.check(path)
        for _func, args in expression.filters:
            self.check(*(_resolve(arg, names) for is_lookup, arg in args if is_lookup))

    def check(self, *paths: str) -> None:
        for path in paths:
            parts = path.split(".")
            beginnings = {".".join(parts[: number + 1]) for number in range(len(parts))}
            if parts[0] not in INNER | {LOCAL, "forloop"} and not beginnings & self.covered:
                self.missing.add(path)


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", ""))


def _path(expression: FilterExpression, names: dict[str, str]) -> str:
    return _resolve(expression.var, names)


def _resolve(var: object, names: dict[str, str]) -> str:
    if not isinstance(var, Variable) or not var.lookups or var.var in ("True", "False", "None"):
        return LOCAL
    root, dot, rest = str(var.var).partition(".")
    known = names.get(root, root)
    return LOCAL if known == LOCAL else known + dot + rest


def _expressions(value: Any, *, is_top: bool = True) -> Iterator[FilterExpression]:
    """All expressions of a node itself, without those of the nodes in it."""
    if isinstance(value, FilterExpression):
        yield value
    elif (isinstance(value, Node) and is_top) or isinstance(value, TokenBase):
        for name, one in vars(value).items():
            if name != "parent":
                yield from _expressions(one, is_top=False)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _expressions(one, is_top=False)
    elif isinstance(value, list | tuple) and not isinstance(value, NodeList):
        for one in value:
            yield from _expressions(one, is_top=False)


def _inside(node: Node) -> Iterator[NodeList]:
    if isinstance(node, IncludeNode):
        name = node.template.var
        for one in [name] if isinstance(name, str) else ENTRIES:
            yield engines["django"].engine.get_template(one).nodelist  # type: ignore[attr-defined]
    elif isinstance(node, IfNode):
        yield from (nodes for _condition, nodes in node.conditions_nodelists)
    else:
        found = (getattr(node, name, None) for name in node.child_nodelists)
        yield from (nodes for nodes in found if nodes)


def cached_fragments() -> list[CachedNode]:
    engine = engines["django"].engine  # type: ignore[attr-defined]
    found = (engine.get_template(name).nodelist.get_nodes_by_type(CachedNode) for name in TEMPLATES)
    return [node for nodes in found for node in nodes]


def test_the_key_of_every_fragment_holds_everything_that_it_shows() -> None:
    missing = {node.name: Usage(node).missing for node in cached_fragments()}
    assert {name: paths for name, paths in missing.items() if paths} == {}
    assert {"sidebar row", "entry", "browse row", "chart"} <= missing.keys()


@pytest.mark.parametrize(
    "source",
    [
        '{% cached "a" session|fields:"pk" %}{{ session.title }}{% endcached %}',
        '{% cached "a" session|fields:"pk" %}{% if session.pinned_at %}x{% endif %}{% endcached %}',
        '{% cached "a" session|fields:"pk" %}{% with one=session %}{{ one.title }}{% endwith %}{% endcached %}',
        '{% cached "a" %}{% include "chat/_sidebar_session.html" with session=row.session %}{% endcached %}',
        '{% cached "a" %}{% for part in entry.parts %}{{ part }}{% endfor %}{% endcached %}',
        '{% load i18n %}{% cached "a" %}{% blocktranslate %}Hello {{ name }}{% endblocktranslate %}{% endcached %}',
    ],
)
def test_a_forgotten_part_of_a_key_is_found(source: str) -> None:
    [node] = Template(source).nodelist.get_nodes_by_type(CachedNode)
    assert isinstance(node, CachedNode)
    assert Usage(node).missing


def test_two_fragments_never_share_a_name() -> None:
    names = [node.name for node in cached_fragments()]
    assert sorted(names) == sorted(set(names))


# The language, zone and day of a page are read once.
def test_no_template_changes_language_or_zone_in_the_middle() -> None:
    for name in TEMPLATES:
        source = (FOLDER / name).read_text()
        assert not any(tag in source for tag in ("{% language ", "{% timezone ", "{% localtime "))


FRAGMENT = Template('{% cached "test" key %}{{ value }}{% endcached %}')


def shown(key: object, value: object) -> str:
    return FRAGMENT.render(Context({"key": key, "value": value}))


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    fragments.clear()
    yield
    fragments.clear()


def test_a_fragment_is_rendered_once_for_a_key() -> None:
    assert shown(1, "first") == shown(1, "second") == "first"
    assert shown(2, "second") == "second"


def test_a_fragment_without_a_key_is_not_cached() -> None:
    assert [shown(None, "first"), shown(None, "second")] == ["first", "second"]


def test_language_zone_day_and_prefix_are_part_of_every_key() -> None:
    assert shown(1, "here") == "here"
    with translation.override("zh-hans"):
        assert shown(1, "other language") == "other language"
    with timezone.override("Pacific/Kiritimati"):
        assert shown(1, "other zone") == "other zone"
    with mock.patch.object(timezone, "now", return_value=timezone.now() + timedelta(days=1)):
        assert shown(1, "other day") == "other day"
    with mock.patch("history.templatetags.fragments.get_script_prefix", return_value="/parley/"):
        assert shown(1, "other prefix") == "other prefix"


def test_the_least_recently_used_fragment_is_dropped_first() -> None:
    cache = FragmentCache(most_chars=25_000)
    html = SafeString("x" * 1_000)
    for key in range(16):
        cache.set(key, html)
    assert cache.get(0) == html
    cache.set(16, html)
    assert (cache.get(0), cache.get(1), cache.get(16)) == (html, None, html)
    assert cache.chars <= cache.most_chars


def test_a_very_long_fragment_is_not_kept() -> None:
    cache = FragmentCache(most_chars=25_000)
    cache.set(1, SafeString("x" * 5_000))
    assert cache.get(1) is None
