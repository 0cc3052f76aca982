"""Typed readers of environment variables, and secret keys that the first start creates.

Invalid values are noted with what to write instead; `stop_if_wrong` prints all of them and ends the process.
"""

import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from dotenv import dotenv_values

FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
EXIT_CODE = 2

T = TypeVar("T")


class Environment:
    """The variables of a process over those of a `.env` file. An empty variable counts as not set."""

    def __init__(self, variables: Mapping[str, str | None]) -> None:
        self.variables = variables
        self.problems: list[str] = []
        self.names: list[str] = []

    @classmethod
    def of_process(cls, dotenv: Path) -> "Environment":
        return cls({**dotenv_values(dotenv), **os.environ})

    def text(self, name: str, default: str = "") -> str:
        self.names.append(name)
        return (self.variables.get(name) or "").strip() or default

    def _parsed(self, name: str, default: T, parse: Callable[[str], T], what_to_write: str) -> T:
        """What `parse` makes of the value; it raises an error if the value is wrong."""
        value = self.text(name)
        try:
            return parse(value) if value else default
        except (KeyError, ValueError, OSError):
            self.refuse(name, what_to_write)
            return default

    def flag(self, name: str, default: bool) -> bool:
        return self._parsed(name, default, lambda value: FLAGS[value.lower()], "write true or false")

    def whole_number(self, name: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        def parse(value: str) -> int:
            # isdecimal alone accepts "４２".
            if value.isascii() and value.isdecimal() and least <= int(value) <= most:
                return int(value)
            raise ValueError

        return self._parsed(name, default, parse, f"write a whole number from {least} to {most}")

    def amount(self, name: str, default: Decimal) -> Decimal:
        return self._parsed(name, default, _amount, "write a number like 2 or 0.50")

    def share(self, name: str, default: float) -> float:
        def parse(value: str) -> float:
            if (share := float(_amount(value))) <= 1:
                return share
            raise ValueError

        return self._parsed(name, default, parse, "write a number from 0 to 1, like 0.8")

    def words(self, name: str, default: Iterable[str] = ()) -> list[str]:
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

    def file(self, name: str, default: T, read: Callable[[Path], T], *, base: Path) -> T:
        """What `read` makes of a file. Its error says what to write instead."""
        path = self.path(name, Path(), base=base)
        try:
            return default if path == Path() else read(path)
        except ValueError as error:
            self.refuse(name, str(error))
            return default

    def folders(self, name: str) -> list[Path]:
        """Folders that need not be there yet, separated by commas."""
        paths = [Path(word).expanduser() for word in self.words(name) if "\0" not in word]
        if not all(path.is_absolute() for path in paths):
            self.refuse(name, "write absolute paths of folders like /srv/projects, separated by commas")
            return []
        return paths

    def url(self, name: str, default: str = "", *, schemes: tuple[str, ...], example: str) -> str:
        def parse(value: str) -> str:
            parts = urlsplit(value)
            # Reading the port is what checks it.
            if parts.scheme in schemes and (parts.port is None or parts.port > 0):
                return value
            raise ValueError

        return self._parsed(name, default, parse, f"write a URL like {example}")

    def choice(self, name: str, default: str, *, among: Iterable[str]) -> str:
        choices = {value: value for value in among}
        return self._parsed(name, default, choices.__getitem__, f"write one of {', '.join(choices)}")

    def time_zone(self, name: str, default: str) -> str:
        return self._parsed(name, default, lambda value: ZoneInfo(value).key, "write a name like Europe/Berlin or UTC")

    def refuse(self, name: str, what_to_write: str) -> None:
        self.problems.append(f"{name} is {shown(name, self.text(name))}: {what_to_write}.")

    def stop_if_wrong(self) -> None:
        if self.problems:
            sys.stderr.write(f"Parley cannot start. {' '.join(self.problems)}\n")
            raise SystemExit(EXIT_CODE)


def _amount(value: str) -> Decimal:
    if not re.fullmatch(r"[0-9]{1,8}(?:\.[0-9]{1,4})?", value):
        raise ValueError
    return Decimal(value)


def process_variable(name: str) -> str:
    """A variable that others define, such as the web server or the desktop; `.env` does not set it."""
    return os.environ.get(name, "")


def local_url(host: str, port: int) -> str:
    """The URL of a server on its own machine."""
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def shown(name: str, value: str) -> str:
    """The value for error messages: without secrets and passwords in URLs, shortened, on one line."""
    if "KEY" in name or "TOKEN" in name or "PASSWORD" in name:
        return "not usable"
    value = " ".join(value.split())
    scheme, divider, rest = value.partition("://")
    if divider and "@" in rest:
        value = f"{scheme}://…@{rest.rpartition('@')[2]}"
    return f'"{value if len(value) <= 80 else value[:79] + "…"}"'


def key_from(path: Path) -> str:
    if not path.exists():
        write_new(path, secrets.token_urlsafe(48))
    key = path.read_text(encoding="ascii").strip()
    if len(key) < 32:
        raise ValueError(f"{path} does not contain a valid key. Delete the file; the next start creates a new one.")
    return key


def write_new(path: Path, text: str) -> None:
    """Create the file with this text, unless another process was first."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        return
    finally:
        draft.unlink()
