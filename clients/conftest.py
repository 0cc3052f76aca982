"""Parley as a process of its own with a provider for each subscription, and the clients with invented logins."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clients.played import MODEL_OF_CODEX, ClosedProxy, Vendor, serve
from history.clients.setups import SETUPS
from tests.servers.processes import ROOT, clean_environment, free_port, run_manage, run_server, wait_for

PROGRAMS = ROOT / "artefacts" / "clients" / "node_modules" / ".bin"
LOGIN = "invented-login-of-a-subscriber-7f3c9a1b5d8e2046"
ACCOUNT = "0f5b8a52-1c77-4a55-9a3e-invented0001"
SECONDS = 120
PROVIDERS = """
[[providers]]
name = "claude-plan"
dialect = "anthropic-messages"
base_url = "{url}"
credentials = "caller"

[[providers]]
name = "chatgpt-plan"
dialect = "openai-responses"
base_url = "{url}/backend-api/codex"
credentials = "caller"
"""
MAKE_KEY = """
from history.access import keys
from project.accounts.models import User
print(keys.create(name="k", owner=User.objects.create_user("ada"), recording="full").secret)
"""


@dataclass(frozen=True)
class Parley:
    url: str
    key: str
    folder: Path
    log: Path

    def exchanges(self, count: int) -> list[dict[str, object]]:
        """Once so many calls with an answer are in the record."""
        wait_for(lambda: len(self._exchanges()) >= count, seconds=30, what=f"exchange {count}")
        return self._exchanges()

    def _exchanges(self) -> list[dict[str, object]]:
        with sqlite3.connect(self.folder / "parley.sqlite3") as database:
            database.row_factory = sqlite3.Row
            rows = database.execute(
                "SELECT provider, cost, metadata, status_code, end_reason FROM history_exchange "
                "WHERE ended_at IS NOT NULL ORDER BY started_at"
            )
            return [{**dict(row), "metadata": json.loads(row["metadata"])} for row in rows]

    def holds(self, text: str) -> bool:
        """Whether a file of the server has this text: the database, the journal, the log."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return any(text.encode() in path.read_bytes() for path in (*files, self.log))


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    server = Vendor()
    with serve(server):
        yield server


@pytest.fixture
def proxy() -> Iterator[ClosedProxy]:
    server = ClosedProxy()
    with serve(server):
        yield server


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A data directory with a key in its database, to be copied; the key."""
    folder = tmp_path_factory.mktemp("made")
    variables = {"PARLEY_DATA_DIR": str(folder), "DATABASE_URL": f"sqlite:///{folder}/parley.sqlite3"}
    migrated = run_manage("migrate", "--verbosity", "0", **variables)
    assert migrated.returncode == 0, migrated.stderr
    return folder, run_manage("shell", "--no-imports", "--command", MAKE_KEY, **variables).stdout.strip()


@pytest.fixture
def parley(vendor: Vendor, made: tuple[Path, str], tmp_path: Path) -> Iterator[Parley]:
    folder, log, file = tmp_path / "data", tmp_path / "server.log", tmp_path / "providers.toml"
    shutil.copytree(made[0], folder)
    file.write_text(PROVIDERS.format(url=vendor.url))
    variables = {
        "PARLEY_DATA_DIR": str(folder),
        "DATABASE_URL": f"sqlite:///{folder}/parley.sqlite3",
        "PARLEY_PROVIDERS": str(file),
        "PARLEY_DEMO_MODEL": "off",
    }
    port = free_port()
    with run_server(
        "uvicorn",
        application="project.asgi:application",
        port=port,
        log=log,
        environment=clean_environment(**variables),
    ):
        yield Parley(f"http://127.0.0.1:{port}", made[1], folder, log)


@dataclass
class Client:
    """A client with a home of its own. Everything but loopback goes to the closed proxy."""

    program: Path
    home: Path
    proxy: ClosedProxy
    variables: dict[str, str]

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        address = self.proxy.url
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TERM": "dumb",
            **dict.fromkeys(
                ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"), address
            ),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
            **self.variables,
            **variables,
        }
        return subprocess.run(
            [str(self.program), *arguments],
            cwd=self.home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


def printed_settings(client: str, parley: Parley, *, key: str = "") -> str:
    """As the page API keys prints them for a subscription."""
    [setup] = [one for one in SETUPS if one.client == client and one.plan]
    return setup.settings(url=parley.url, key=key or parley.key)


def find_program(name: str) -> Path:
    if not (PROGRAMS / name).exists():
        pytest.skip(f"{name} is not installed in {PROGRAMS}: run `make clients`, which needs npm and its registry")
    return PROGRAMS / name


@pytest.fixture
def claude_code(parley: Parley, proxy: ClosedProxy, tmp_path: Path) -> Client:
    return make_claude_code(parley, proxy, tmp_path)


def make_claude_code(parley: Parley, proxy: ClosedProxy, folder: Path, *, key: str = "") -> Client:
    program, home = find_program("claude"), folder / "home"
    (home / ".claude").mkdir(parents=True)
    login = {
        "accessToken": LOGIN,
        "refreshToken": "invented-refresh-token",
        "expiresAt": int(time.time() + 3600) * 1000,
        "scopes": ["user:inference", "user:profile"],
        "subscriptionType": "max",
        "rateLimitTier": "default_claude_max_5x",
    }
    (home / ".claude" / ".credentials.json").write_text(json.dumps({"claudeAiOauth": login}))
    lines = printed_settings("Claude Code", parley, key=key).splitlines()
    exported = [line.removeprefix("export ") for line in lines if line.startswith("export ")]
    variables = {name: value.strip("'") for name, _, value in (line.partition("=") for line in exported)}
    return Client(program, home, proxy, variables)


@pytest.fixture
def codex(parley: Parley, proxy: ClosedProxy, tmp_path: Path) -> Client:
    return make_codex(parley, proxy, tmp_path)


def make_codex(parley: Parley, proxy: ClosedProxy, folder: Path, *, key: str = "", more: str = "") -> Client:
    program, home = find_program("codex"), folder / "home"
    (home / ".codex").mkdir(parents=True)
    tokens = {
        "id_token": _unsigned_token(),
        "access_token": LOGIN,
        "refresh_token": "invented-refresh-token",
        "account_id": ACCOUNT,
    }
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    login = {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": now}
    (home / ".codex" / "auth.json").write_text(json.dumps(login))
    text = printed_settings("Codex", parley, key=key)
    (home / ".codex" / "config.toml").write_text(f'{text}\nmodel = "{MODEL_OF_CODEX}"\n{more}\n')
    return Client(program, home, proxy, {})


def _unsigned_token() -> str:
    claims = {
        "email": "ada@example.org",
        "exp": int(time.time()) + 3600,
        "https://api.openai.com/auth": {"chatgpt_account_id": ACCOUNT, "chatgpt_plan_type": "plus"},
    }
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims)]
    return ".".join([base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts] + ["invented"])
