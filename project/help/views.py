"""Documentation at /help/: pages of `docs/`, rendered by Python-Markdown with contents and permalinks.

These files are part of Parley and trusted. Texts of users and models are rendered by `history.markdown`.
"""

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import markdown
from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import FileResponse, Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.views.decorators.http import require_safe
from markdown.extensions.tables import TableExtension
from markdown.extensions.toc import TocExtension
from markdown.treeprocessors import Treeprocessor


@login_required
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    labels = {
        "": _("Guides"),
        "clients": _("Clients"),
        "decisions": _("Decisions"),
        "internals": _("Internals"),
        "zh": "简体中文",
    }
    folders = groupby(list_pages(), key=lambda page: page.folder)
    groups = [(labels.get(folder, folder), list(pages)) for folder, pages in folders]
    return render(request, "help/index.html", {"groups": groups})


@login_required
@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    found = find_page(name)
    if found is None:
        raise Http404
    return render(request, "help/page.html", {"page": found})


@login_required
@require_safe
def picture(request: HttpRequest, name: str) -> FileResponse:
    path = DOCS / "images" / f"{name}.png"
    if not path.is_file():
        raise Http404
    return FileResponse(path.open("rb"))


DOCS = Path(settings.BASE_DIR) / "docs"
_TITLE = re.compile(r"^# +(.+?)\s*$", re.MULTILINE)
_PICTURE = re.compile(r'(?<=["\s])(src|srcset)="[^":]*\bimages/([\w-]+)\.png"')
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class HelpPage:
    """One page: its name (`clients/codex`), its title, and, once rendered, its HTML and contents."""

    name: str
    title: str
    html: str = ""
    contents: str = ""

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.name)

    def get_absolute_url(self) -> str:
        return reverse("help:page", args=[self.name])


def list_pages() -> list[HelpPage]:
    pages = [HelpPage(name, _title(path)) for name, path in _files().items()]
    return sorted(pages, key=lambda one: (one.folder, one.name if one.folder == "decisions" else one.title.lower()))


def find_page(name: str) -> HelpPage | None:
    """A page with its HTML. The name is looked up in the list of files, so it never leads out of `docs/`."""
    path = _files().get(name)
    return _render(name, path, path.stat().st_mtime_ns) if path else None


def _files() -> dict[str, Path]:
    return {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in sorted(DOCS.rglob("*.md"))}


def _title(path: Path) -> str:
    found = _TITLE.search(path.read_text(encoding="utf-8"))
    return found[1].replace("`", "") if found else path.stem


@lru_cache(maxsize=128)
def _render(name: str, path: Path, changed: int) -> HelpPage:
    """`changed` makes an edited file another page."""
    contents = TocExtension(slugify=slugify, permalink="#", permalink_title="", toc_depth="2-3")
    tables = TableExtension(use_align_attribute=True)
    parser = markdown.Markdown(extensions=["fenced_code", "sane_lists", tables, contents], output_format="html")
    parser.treeprocessors.register(_LinkProcessor(parser, name), "help_links", 1)
    # Wide code scrolls by keyboard, too.
    html = parser.convert(path.read_text(encoding="utf-8")).replace("<pre>", '<pre tabindex="0">')
    html = _PICTURE.sub(lambda found: f'{found[1]}="{reverse("help:picture", args=[found[2]])}"', html)
    toc = getattr(parser, "toc", "") if getattr(parser, "toc_tokens", None) else ""
    # Made from files of this repository.
    return HelpPage(name, _title(path), mark_safe(html), mark_safe(toc))  # noqa: S308


def slugify(value: str, separator: str) -> str:
    """The anchor that GitHub gives a heading, so that links between the files work in both places."""
    return _NOT_IN_SLUG.sub("", value.strip().lower()).replace(" ", separator)


class _LinkProcessor(Treeprocessor):
    """Links between files become links between pages; wide tables get a box that scrolls."""

    def __init__(self, md: markdown.Markdown, name: str) -> None:
        super().__init__(md)
        self.name, self.names = name, set(_files())

    def run(self, root: ElementTree.Element) -> None:
        for link in root.iter("a"):
            address = self._address(link.get("href", ""))
            if address is None:
                link.attrib.pop("href", None)
            else:
                link.set("href", address)
        for cell in root.iter("th"):
            if not "".join(cell.itertext()).strip():
                cell.tag = "td"  # a header without words is no header to a screen reader
        for place, child in enumerate(list(root)):
            if child.tag == "table":
                root[place] = box = ElementTree.Element("div", {"class": "table-box", "tabindex": "0"})
                box.append(child)

    def _address(self, href: str) -> str | None:
        """None for files that are not documentation pages: they are not served."""
        if href.startswith(("#", "http://", "https://", "mailto:")):
            return href
        target, _, anchor = href.partition("#")
        name = posixpath.normpath(posixpath.join(posixpath.dirname(self.name), target)).removesuffix(".md")
        if name not in self.names:
            return None
        return reverse("help:page", args=[name]) + (f"#{anchor}" if anchor else "")
