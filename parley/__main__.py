"""The command `parley` of the wheel: each command of `manage.py`, and `--version`."""

import os
import sys
from importlib import metadata

# The same as `make run` sets: without them glibc keeps the memory of large answers.
MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "524288"}


def main() -> None:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        sys.stdout.write(f"Parley {metadata.version('parley')}\n")
        return
    if arguments[:1] in (["run"], ["serve"]):
        restart_with_memory_settings(arguments)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(["parley", *arguments])


def restart_with_memory_settings(arguments: list[str]) -> None:
    """Replace this process by one with the variables of MEMORY, which glibc reads only at its start."""
    missing = {name: value for name, value in MEMORY.items() if name not in os.environ}
    if missing:
        # -P: a module in the current folder must not take the place of one of ours.
        command = [sys.executable, "-P", "-m", "parley", *arguments]
        os.execve(sys.executable, command, {**os.environ, **missing})  # noqa: S606 - our own module


if __name__ == "__main__":
    main()
