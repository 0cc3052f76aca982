"""The wheel of `make dist`: in an empty virtual environment it serves, chats, records and runs commands."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.servers.browser import Browser
from tests.servers.installation import PROVIDERS
from tests.servers.processes import (
    MEMORY,
    ROOT,
    Process,
    clean_environment,
    free_port,
    is_answering,
    run_process,
    wait_for,
)
from tests.vendors import KEYS, Vendors, says

pytestmark = [pytest.mark.any_database, pytest.mark.runs_first]

# Folders of the repository whose files are in the wheel, but for what only a clone uses.
FOLDERS = ("project", "history", "relay", "templates", "static", "locale", "docs")
NOT_IN_WHEEL = re.compile(r"/__pycache__/|\.po$|^docs/images/\w+\.py$")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [path] = folder.iterdir()
    return path


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, a user's home folder, and an empty folder to work in."""

    folder: Path
    variables: dict[str, str]
    files_at_start: frozenset[str]

    @property
    def program(self) -> str:
        return str(self.folder / "venv/bin/parley")

    @property
    def python(self) -> str:
        return str(self.folder / "venv/bin/python")

    @property
    def home(self) -> Path:
        """The folder with `.env` and `data/`."""
        return self.folder / "user" / ".local" / "share" / "parley"

    @property
    def working_folder(self) -> Path:
        return self.folder / "work"

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            cwd=self.working_folder,
            env=self.variables | variables,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def printed_by(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def packaged_files(self) -> frozenset[str]:
        return packaged_files(self.folder / "venv")


def packaged_files(environment: Path) -> frozenset[str]:
    """All files of a virtual environment, without the bytecode that Python writes."""
    return frozenset(str(path) for path in environment.rglob("*") if path.is_file() and path.suffix != ".pyc")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Other packages come from the environment of the tests: nothing is downloaded."""
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check"]
    install = [*pip, "install", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    for name in ("user", "work"):
        (folder / name).mkdir()
    # Python compiles each module once: without that each process would compile all of them.
    unset = {*MEMORY, "DJANGO_SETTINGS_MODULE", "PARLEY_PROVIDERS", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    unset.add("XDG_DATA_HOME")
    variables = {name: value for name, value in clean_environment().items() if name not in unset}
    return Installed(folder, variables | {"HOME": str(folder / "user")}, packaged_files(environment))


@dataclass(frozen=True)
class Running:
    port: int
    process: Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def link(self) -> str:
        found = re.search(r"http://\S+/accounts/link/\S+/", self.process.output)
        assert found, self.process.output
        return found[0]


@pytest.fixture(scope="module")
def vendors() -> Iterator[Vendors]:
    with Vendors() as server:
        yield server


@pytest.fixture(scope="module")
def running(installed: Installed, vendors: Vendors) -> Iterator[Running]:
    """`parley run` with a provider in `.env` of its folder, which is relative to that folder."""
    installed.home.mkdir(parents=True, exist_ok=True)  # a command of an earlier test may have made it
    (installed.home / "providers.toml").write_text(PROVIDERS.format(url=vendors.url, key=KEYS["openai"]))
    (installed.home / ".env").write_text("PARLEY_PROVIDERS=providers.toml\nPARLEY_DEMO_MODEL=off\n")
    with serve(installed) as running:
        yield running


@contextmanager
def serve(installed: Installed) -> Iterator[Running]:
    port = free_port()
    # The digester is a process, as on several cores, however many the tests have.
    environment = installed.variables | {"PORT": str(port), "PARLEY_DIGESTER": "process"}
    command, log = [installed.program, "run"], installed.folder / "run.log"
    with run_process(command, log=log, environment=environment, folder=installed.working_folder) as process:
        wait_for(lambda: is_answering(port, "/readyz") or process.popen.poll() is not None, what="parley run")
        assert process.popen.poll() is None, process.output
        yield Running(port, process)


@pytest.fixture(scope="module")
def browser(running: Running) -> Browser:
    """Signed in by the link that `parley run` printed."""
    browser = Browser()
    assert "Hello, admin" in browser.press(running.link)
    return browser


def test_wheel_has_the_files_of_the_repository_in_one_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = (
        path.relative_to(ROOT).as_posix() for name in FOLDERS for path in (ROOT / name).rglob("*") if path.is_file()
    )
    expected = {f"parley/{name}" for name in files if not NOT_IN_WHEEL.search(name)}
    expected |= {f"parley/{name}.py" for name in ("__init__", "__main__", "asgi")}
    assert {name for name in names if name.startswith("parley/")} == expected
    assert {name.split("/")[0].split("-")[0] for name in names} == {"parley"}


def test_wheel_requires_the_pinned_versions(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    required = {words.split(";")[0].strip() for words in metadata.get_all("Requires-Dist", [])}
    assert required == pins("requirements.txt") | {pin for pin in pins("requirements-model.txt") if "xllamacpp" in pin}
    assert metadata.get_all("Provides-Extra") == ["model"]


def pins(name: str) -> set[str]:
    return set(re.findall(r"^[a-zA-Z][\w.-]*==[\w.]+", (ROOT / name).read_text(), re.MULTILINE))


def test_installed_wheel_chats_over_its_websocket(running: Running, browser: Browser, vendors: Vendors) -> None:
    vendors.plays("openai-chat", says("Hello ", "from the wheel."), says("Yes, ", "it is round."))
    session = browser.press(running.url, text="Who are you?")
    with browser.chatting(running.url, session) as page:
        page.until(lambda page: "Hello from the wheel." in page.talk)
        page.send_json("send", text="Is a wheel round?", after=page.after)
        page.until(lambda page: "Yes, it is round." in page.talk)


def test_installed_wheel_has_static_files_help_and_translations(running: Running, browser: Browser) -> None:
    style = re.search(r"/static/bundles/chat\.[0-9a-f]{12}\.css", browser.read(running.url))
    assert style, "static files have no hashed names"
    assert "body {" in browser.read(running.url + style[0])
    assert "serve --workers 4" in browser.read(f"{running.url}/help/setup/")
    with browser.open(f"{running.url}/help/images/chat.png") as picture:
        assert picture.headers["Content-Type"] == "image/png"
    chinese = Request(f"{running.url}/accounts/signin/", headers={"Accept-Language": "zh-hans"})
    with urlopen(chinese, timeout=20) as page:
        assert "登录" in page.read().decode()


def test_installed_wheel_records_a_relayed_call_by_its_digester(
    installed: Installed, running: Running, browser: Browser, vendors: Vendors
) -> None:
    key = installed.printed_by("keys", "create", "laptop").strip()
    vendors.plays("openai-chat", says("Recorded."))
    body = {"model": "model", "messages": [{"role": "user", "content": "Who records this?"}]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    call = Request(f"{running.url}/v1/chat/completions", data=json.dumps(body).encode(), headers=headers)
    with urlopen(call, timeout=30) as response:
        assert "Recorded." in response.read().decode()
    wait_for(lambda: "Who records this?" in browser.read(f"{running.url}/history/"), what="the call being recorded")
    assert "Who records this?" in installed.printed_by("history", "list")


def test_run_sets_the_memory_settings_of_make_run(running: Running) -> None:
    variables = Path(f"/proc/{running.process.popen.pid}/environ").read_bytes().split(b"\0")
    assert {f"{name}={value}".encode() for name, value in MEMORY.items()} <= set(variables)


def test_installed_wheel_writes_into_its_own_folder_only(installed: Installed, running: Running) -> None:
    copy = installed.printed_by("backup")
    assert copy.startswith(f"{installed.home}/data/backups/")
    assert (installed.home / "data" / "parley.sqlite3").is_file()
    assert list(installed.working_folder.iterdir()) == []
    assert installed.packaged_files() == installed.files_at_start


def test_commands_of_the_wheel_are_named_parley(installed: Installed, tmp_path: Path) -> None:
    refused = installed.run("signin", "admin", XDG_DATA_HOME=str(tmp_path))
    assert refused.stderr == "CommandError: The database needs migrations. Run: parley migrate\n"
    assert (tmp_path / "parley" / "data" / "secret.key").is_file()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = installed.run("run", XDG_DATA_HOME=str(tmp_path), PORT=str(port))
    assert f"PORT={port + 1} parley run" in refused.stderr
    assert installed.printed_by("history", "list", "--help").startswith("usage: parley history list")
    assert installed.printed_by("--version") == f"Parley {version()}\n"


def test_servers_find_the_application_of_the_wheel(installed: Installed, running: Running) -> None:
    command = [installed.python, "-m", "uvicorn", "--port", str(port := free_port()), "parley.asgi:application"]
    log = installed.folder / "uvicorn.log"
    with run_process(command, log=log, environment=installed.variables, folder=installed.working_folder) as process:
        wait_for(lambda: is_answering(port) or process.popen.poll() is not None, what="uvicorn")
        assert process.popen.poll() is None, process.output


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])
