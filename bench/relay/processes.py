"""The processes: a mock upstream, the relay and a bare one, each under a server of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Side:
    """Where it is, and the process whose CPU counts. `wait` until what it has carried is in the history."""

    name: str
    port: int
    pid: int
    headers: bytes = b""
    carried: int = 0
    wait: Callable[[int], None] | None = None

    def settle(self) -> None:
        if self.wait is not None:
            self.wait(self.carried)

    def cpu(self) -> float:
        return sum(map(_cpu, self.workers()))

    def digestion(self) -> float:
        return sum(map(_cpu, self.digesters()))

    def memory(self) -> float:
        """PSS in MB."""
        return sum(map(_pss, self.workers()))

    def workers(self) -> list[int]:
        return [pid for pid in [self.pid, *_children(self.pid)] if not _is_digester(pid)]

    def digesters(self) -> list[int]:
        below = [pid for child in _children(self.pid) for pid in (child, *_children(child))]
        return [pid for pid in below if _is_digester(pid)]


@dataclass(frozen=True)
class Sides:
    ours: Side
    bare: Side
    mock: Side


@contextmanager
def sides(server: str, folder: Path, *, database: str) -> Iterator[Sides]:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.servers.processes import clean_environment, free_port, run_process, run_server

    upstream, ours, bare = free_port(), free_port(), free_port()
    address = f"http://127.0.0.1:{upstream}"
    variables = {
        "DATABASE_URL": database,
        "PARLEY_DATA_DIR": str(folder),
        "PARLEY_PROVIDERS": str(_providers(folder, address)),
        "PARLEY_LOG_LEVEL": "ERROR",
        "PARLEY_JOURNAL_MB": "100000",
        "PARLEY_LOOPBACK_ONLY": "off",  # as people run it
    }
    key = _key(variables)
    with ExitStack() as stack:
        start = stack.enter_context
        python = [sys.executable, "-m", "bench.relay.upstream", str(upstream)]
        mock = start(run_process(python, log=folder / "upstream", environment=clean_environment()))
        mine = start(run_server(server, application="project.asgi:application", port=ours, log=folder / "ours",
                             environment=clean_environment(**variables)))  # fmt: skip
        other = start(run_server(server, application="bench.relay.bare:application", port=bare, log=folder / "bare",
                              environment=clean_environment(BENCH_UPSTREAM=address)))  # fmt: skip
        headers = f"authorization: Bearer {key}\r\n".encode()
        yield Sides(
            Side("Parley", ours, mine.popen.pid, headers=headers),
            Side("bare", bare, other.popen.pid, headers=headers),
            Side("mock", upstream, mock.popen.pid),
        )


def _key(variables: dict[str, str]) -> str:
    from tests.servers.processes import run_manage

    run_manage("migrate", "--verbosity=0", **variables)
    person = "from project.accounts.models import User; User.objects.create_user('bench', is_staff=True)"
    run_manage("shell", "--no-imports", "--command", person, **variables)
    made = run_manage("keys", "create", "bench", "--recording", "full", "--json", **variables)
    return str(json.loads(made.stdout)["key"])


def _providers(folder: Path, address: str) -> Path:
    file = folder / "providers.toml"
    file.write_text(
        f'[[providers]]\nname = "bench"\ndialect = "openai-chat"\nbase_url = "{address}/v1"\nmodels = ["m"]\n'
    )
    return file


def _is_digester(pid: int) -> bool:
    return b"relay.digest" in Path(f"/proc/{pid}/cmdline").read_bytes()


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _children(pid: int) -> list[int]:
    done = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in done.stdout.split()]
