"""Several rows of commands at once: `python scripts/run_in_parallel.py "make --silent" "lint types" "on-sqlite"`.

Every word is one command: the given command with the word as its last argument. A row runs from left to right, all rows
run at once, and each runs to its end even if something fails. The output of a command is shown in one piece when it has
ended; the last lines of what failed are shown once more at the very end.
"""

import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

LAST_LINES = 40


@dataclass(frozen=True)
class Done:
    name: str
    code: int
    seconds: float
    output: str

    def __str__(self) -> str:
        return f"{self.name}: {'FAILED' if self.code else 'passed'} after {self.seconds:.0f} seconds"


def run_row(command: str, names: str) -> list[Done]:
    return [run(command, name) for name in names.split()]


def run(command: str, name: str) -> Done:
    show(f"{name}: begins")
    began = time.monotonic()
    process = subprocess.run(
        [*shlex.split(command), name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    output = process.stdout.decode(errors="replace").rstrip()
    done = Done(name=name, code=process.returncode, seconds=time.monotonic() - began, output=output)
    show(f"{output}\n{done}")
    return done


def show(text: str) -> None:
    # In one piece: other rows write too.
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(command: str, *rows: str) -> int:
    with ThreadPoolExecutor(len(rows)) as pool:
        done = [one for row in pool.map(lambda names: run_row(command, names), rows) for one in row]
    failed = [one for one in done if one.code]
    for one in failed:
        show("\n".join(["", f"The end of {one.name}:", *one.output.splitlines()[-LAST_LINES:]]))
    show("\n".join(["", *map(str, done)]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
