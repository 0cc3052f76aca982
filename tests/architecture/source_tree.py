"""The modules of the apps, their imports and their packages, read from the source files."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
APPS = ("project", "relay", "history")


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the apps but migrations, by its dotted name."""
    found = {}
    for app in APPS:
        for path in (ROOT / app).rglob("*.py"):
            if "migrations" not in path.parts:
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def package_of(module: str) -> str:
    """`relay.gateway` for all modules below it; the app itself for a module at its top."""
    parts = module.split(".")
    is_package = len(parts) > 1 and (ROOT / parts[0] / parts[1]).is_dir()
    return ".".join(parts[:2]) if is_package else parts[0]


@cache
def imports_of(module: str) -> frozenset[str]:
    known, found = modules(), set()
    for node in ast.walk(known[module]):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found & known.keys())


def package_imports() -> set[tuple[str, str]]:
    """Pairs of packages of which the first imports the second."""
    pairs = {(package_of(module), package_of(other)) for module in modules() for other in imports_of(module)}
    return {(one, other) for one, other in pairs if one != other}
