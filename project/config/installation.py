"""Folders and commands of this installation: a clone of the repository, or the wheel (`make dist`).

A clone keeps `.env` and `data/` beside the code. The wheel keeps them in the user's data folder, because the next
upgrade replaces all of site-packages.
"""

from pathlib import Path

from project.config.env import process_variable

# The folder of the code, templates, static files and docs.
TREE = Path(__file__).resolve().parents[2]
IS_CLONE = (TREE / "manage.py").is_file()
PROGRAM = "manage.py" if IS_CLONE else "parley"


def home_folder() -> Path:
    """The folder with `.env` and `data/`, to which paths in settings are relative."""
    if IS_CLONE:
        return TREE
    # The XDG Base Directory Specification: a relative path counts as not set.
    folder = process_variable("XDG_DATA_HOME")
    if not Path(folder).is_absolute():
        folder = str(Path("~/.local/share").expanduser())
    return Path(folder) / "parley"


def command_line(words: str) -> str:
    """A command of Parley as users of this installation write it: `manage.py migrate` or `parley migrate`."""
    return f"{PROGRAM} {words}"


def start_command() -> str:
    return "make run" if IS_CLONE else command_line("run")
