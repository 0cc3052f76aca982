"""Bundles: the style sheets and the scripts of a page, each joined into one file when static files are collected.

A page names a bundle (`{% bundle "chat.css" %}`). Until files are collected, and with DEBUG, the page gets the files of
the bundle one by one. Our scripts are modules that share no names; in a bundle each keeps its names to itself, and one
that fails does not stop the next. Vendored scripts define globals and are joined as they are.
"""

from collections.abc import Callable

FOLDER = "bundles/"


def _components(*names: str) -> tuple[str, ...]:
    return tuple(f"css/components/{name}.css" for name in names)


def _modules(*names: str) -> tuple[str, ...]:
    return tuple(f"js/{name}.js" for name in names)


_STYLES = ("css/tokens.css", "css/base.css", *_components("controls", "lists", "devices", "palette"))
_SIGNED_OUT = ("vendor/htmx.min.js", *_modules("request_errors"))
_SCRIPTS = (*_SIGNED_OUT, *_modules("keyboard", "palette"))
_MORPH = "vendor/idiomorph-ext.min.js"
_CHAT = (
    *_SCRIPTS,
    "vendor/htmx-ext-ws.min.js",
    _MORPH,
    *_modules("socket", "scroll", "command_menu", "composer", "upload", "message_actions", "math_diagrams", "sidebar"),
    *_modules("copy_buttons"),
)

BUNDLES: dict[str, tuple[str, ...]] = {
    "base.css": _STYLES,
    "chat.css": (
        *_STYLES,
        *_components("prose", "transcript"),
        "css/pages/chat.css",
        *_components("sidebar", "composer", "panel", "agents", "attachments", "sharing"),
    ),
    "shared.css": (*_STYLES, *_components("prose", "transcript", "attachments", "sharing")),
    "sharing.css": (*_STYLES, *_components("sharing")),
    "sidebar.css": (*_STYLES, *_components("sidebar")),
    "charts.css": (*_STYLES, "vendor/uplot/uPlot.min.css", "css/pages/charts.css"),
    "help.css": (*_STYLES, "css/components/prose.css", "css/pages/help.css"),
    **{
        f"{name}.css": (*_STYLES, f"css/pages/{name}.css")
        for name in ("browse", "imports", "keys", "lint", "notebook", "providers", "timeline")
    },
    "signed-out.js": _SIGNED_OUT,
    "page.js": _SCRIPTS,
    "chat.js": _CHAT,
    "new-chat.js": (*_CHAT, *_modules("list_updates")),
    "browse.js": (*_SCRIPTS, _MORPH, *_modules("browse", "list_updates")),
    "charts.js": (*_SCRIPTS, "vendor/uplot/uPlot.iife.min.js", *_modules("charts")),
    "copying.js": (*_SCRIPTS, *_modules("copy_buttons")),
    "imports.js": (*_SCRIPTS, *_modules("imports")),
    "keys.js": (*_SCRIPTS, _MORPH, *_modules("copy_buttons", "list_updates")),
}


def join(name: str, read: Callable[[str], str]) -> str:
    """The text of a bundle, from the texts of its files."""
    wrap = _as_module if name.endswith(".js") else _as_is
    return "".join(f"/* {path} */\n{wrap(path, read(path))}\n" for path in BUNDLES[name])


def is_module(path: str) -> bool:
    return path.startswith("js/")


def _as_is(_path: str, text: str) -> str:
    return text


def _as_module(path: str, text: str) -> str:
    if not is_module(path):
        return f"{text}\n;"
    return f'try {{\n(() => {{\n"use strict";\n{text}\n}})();\n}} catch (error) {{\nreportError(error);\n}}'
