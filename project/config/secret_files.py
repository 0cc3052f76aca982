"""Secrets that are made on the first run and kept in a file of the data directory (mode 0600).

Several processes may start at once on an empty directory. Each writes a whole file under a name of its own and then
links it to the common name: the link either appears complete or is refused because another one was first.
"""

import os
import secrets
from pathlib import Path


def key_from(path: Path) -> str:
    """The secret in this file, made now if there is none."""
    if not path.exists():
        write_new(path, secrets.token_urlsafe(48))
    key = path.read_text(encoding="ascii").strip()
    if len(key) < 32:
        raise ValueError(f"{path} holds no usable key. Delete it and a new one is made on the next start.")
    return key


def write_new(path: Path, text: str) -> None:
    """Write the file whole, unless somebody else was first."""
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
