"""Typed, loud readers of the environment.

Each reader takes the variable's name and a default, and returns a value of one type. A value that makes no sense is
noted with what to write instead; `Environment.stop_if_wrong` then says everything that is wrong in one line and ends
the process, so that nobody ever runs with a setting that was silently ignored.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from dotenv import dotenv_values

TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")
EXIT_CODE = 2

_AMOUNT = re.compile(r"[0-9]{1,8}(?:\.[0-9]{1,4})?")


class Environment:
    """The variables of a process over those of a `.env` file. An empty variable counts as not set."""

    def __init__(self, variables: Mapping[str, str | None]) -> None:
        self.variables = variables
        self.problems: list[str] = []
        self.names: list[str] = []

    @classmethod
    def of_process(cls, dotenv: Path) -> Environment:
        return cls({**dotenv_values(dotenv), **os.environ})

    def text(self, name: str, default: str = "") -> str:
        self.names.append(name)
        return (self.variables.get(name) or "").strip() or default

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name).lower()
        if value in TRUE or value in FALSE:
            return value in TRUE
        if value:
            self.refuse(name, "write true or false")
        return default

    def whole_number(self, name: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        value = self.text(name)
        if not value:
            return default
        # isdecimal alone would let "４２" through, which is a number to Python but a typing slip to us.
        if value.isascii() and value.isdecimal() and least <= int(value) <= most:
            return int(value)
        self.refuse(name, f"write a whole number from {least} to {most}")
        return default

    def amount(self, name: str, default: Decimal) -> Decimal:
        """A sum of money, or anything else that is counted in parts."""
        value = self.text(name)
        if not value or _AMOUNT.fullmatch(value):
            return Decimal(value or default)
        self.refuse(name, "write a number like 2 or 0.50")
        return default

    def share(self, name: str, default: float) -> float:
        """A part of a whole."""
        value = self.text(name)
        if not value or (_AMOUNT.fullmatch(value) and float(value) <= 1):
            return float(value or default)
        self.refuse(name, "write a number from 0 to 1, like 0.8")
        return default

    def words(self, name: str, default: Iterable[str] = ()) -> list[str]:
        """A list, separated by commas."""
        value = self.text(name)
        return [word for word in (part.strip() for part in value.split(",")) if word] if value else list(default)

    def dotted_paths(self, name: str) -> list[str]:
        paths = self.words(name)
        if not all("." in path and all(part.isidentifier() for part in path.split(".")) for path in paths):
            self.refuse(name, "write paths like package.module.function, separated by commas")
            return []
        return paths

    def path(self, name: str, default: Path, *, base: Path) -> Path:
        value = self.text(name)
        if "\0" in value:
            self.refuse(name, "write the path of a folder")
            return default
        return base / Path(value).expanduser() if value else default

    def folders(self, name: str) -> list[Path]:
        """Folders that need not be there yet, separated by commas."""
        paths = [Path(word).expanduser() for word in self.words(name) if "\0" not in word]
        if not all(path.is_absolute() for path in paths):
            self.refuse(name, "write whole paths of folders like /srv/projects, separated by commas")
            return []
        return paths

    def url(self, name: str, default: str = "", *, schemes: tuple[str, ...], example: str) -> str:
        value = self.text(name)
        if not value:
            return default
        if is_url(value, schemes=schemes):
            return value
        self.refuse(name, f"write an address like {example}")
        return default

    def choice(self, name: str, default: str, *, among: Iterable[str]) -> str:
        choices = tuple(among)
        value = self.text(name, default)
        if value in choices:
            return value
        self.refuse(name, f"write one of {', '.join(choices)}")
        return default

    def time_zone(self, name: str, default: str) -> str:
        value = self.text(name, default)
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            self.refuse(name, "write a name like Europe/Berlin or UTC")
            return default
        return value

    def refuse(self, name: str, what_to_write: str) -> None:
        self.problems.append(f"{name} is {shown(name, self.text(name))}: {what_to_write}.")

    def refuse_because(self, problem: str) -> None:
        self.problems.append(problem)

    def stop_if_wrong(self) -> None:
        if self.problems:
            sys.stderr.write(f"Parley cannot start. {' '.join(self.problems)}\n")
            raise SystemExit(EXIT_CODE)


def is_url(value: str, *, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(value)
        # Reading the port is what checks it.
        return parts.scheme in schemes and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def local_url(host: str, port: int) -> str:
    """Where a server that listens there is found from its own machine."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def shown(name: str, value: str) -> str:
    """The value as it may be shown: no secret, no password inside an address, not endless, on one line."""
    if "KEY" in name or "TOKEN" in name or "PASSWORD" in name:
        return "not usable"
    value = " ".join(value.split())
    scheme, divider, rest = value.partition("://")
    if divider and "@" in rest:
        value = f"{scheme}://…@{rest.rpartition('@')[2]}"
    return f'"{value if len(value) <= 80 else value[:79] + "…"}"'
