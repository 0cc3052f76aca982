"""htmx headers are read and written by django-htmx, never by hand."""

from __future__ import annotations

import re

from tests.servers.processes import ROOT

# Names of headers by hand. `vary_on_headers` needs them, django-htmx has no helper for it.
BY_HAND = re.compile(r"""["'](?:HX-|HTTP_HX_)""")


def test_no_module_reads_or_writes_an_htmx_header_by_hand() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for app in ("project", "history", "relay")
        for path in (ROOT / app).rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if BY_HAND.search(line) and "vary" not in line
    ]
    assert found == []
